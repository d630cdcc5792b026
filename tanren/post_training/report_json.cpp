#include "tanren/base/json_text.h"
#include "tanren/post_training/quantize_report.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace tanren {

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson number_json(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson bytes_json(int64_t bytes) {
  return bytes > 0 ? OrderedJson(bytes) : OrderedJson(nullptr);
}

OrderedJson known_text_json(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

OrderedJson spread_json(const std::optional<Spread>& spread) {
  if (!spread) return OrderedJson(nullptr);
  return {{"median", number_json(spread->median)},
          {"lowest", number_json(spread->lowest)},
          {"highest", number_json(spread->highest)}};
}

OrderedJson difference_json(const std::optional<Difference>& difference) {
  if (!difference) return OrderedJson(nullptr);
  return {{"mean", number_json(difference->mean)},
          {"lower", number_json(difference->lower)},
          {"upper", number_json(difference->upper)}};
}

// A scheme that was not measured has the same keys, with null for what was not measured.
OrderedJson scheme_json(const SchemeResult& scheme) {
  const bool is_measured = scheme.not_measured.empty();
  return {{"name", scheme.name},
          {"not_measured", known_text_json(scheme.not_measured)},
          {"metric", is_measured ? number_json(scheme.metric) : OrderedJson(nullptr)},
          {"difference", difference_json(scheme.difference)},
          {"tensor_bytes", bytes_json(scheme.tensor_bytes)},
          {"seconds_1", spread_json(scheme.seconds_1)},
          {"seconds_8", spread_json(scheme.seconds_8)},
          {"ratio_1", spread_json(scheme.ratio_1)},
          {"ratio_8", spread_json(scheme.ratio_8)},
          {"peak_bytes", bytes_json(scheme.peak_bytes)},
          {"layers_kept", is_measured ? OrderedJson(scheme.layers_kept) : OrderedJson(nullptr)},
          {"is_within_tolerance", scheme.is_within_tolerance},
          {"is_written", scheme.is_written}};
}

OrderedJson layer_json(const LayerResult& layer) {
  OrderedJson range = nullptr;
  if (layer.input_range) {
    range = OrderedJson::array(
        {number_json(layer.input_range->first), number_json(layer.input_range->second)});
  }
  return {{"name", layer.name},
          {"reader", known_text_json(layer.reader)},
          {"shape", layer.shape},
          {"input_range", range},
          {"error", layer.error ? number_json(*layer.error) : OrderedJson(nullptr)},
          {"share", number_json(layer.share)},
          {"is_8_bit", layer.is_8_bit},
          {"why", layer.why}};
}

}  // namespace

std::string quantize_json_report(const QuantizeReport& report) {
  OrderedJson schemes = OrderedJson::array(), layers = OrderedJson::array();
  for (const SchemeResult& scheme : report.schemes) schemes.push_back(scheme_json(scheme));
  for (const LayerResult& layer : report.layers) layers.push_back(layer_json(layer));
  const OrderedJson json{{"model", report.model},
                         {"data", report.data},
                         {"metric", report.metric},
                         {"goal", report.goal},
                         {"tolerance", number_json(report.tolerance)},
                         {"tolerance_unit", report.tolerance_unit},
                         {"calibration_samples", report.calibration_samples},
                         {"evaluated_samples", report.evaluated_samples},
                         {"processor", report.processor},
                         {"kernels", report.kernels},
                         {"written", known_text_json(report.written)},
                         {"file", known_text_json(report.file)},
                         {"schemes", schemes},
                         {"layers", layers},
                         {"remarks", report.remarks}};
  return json_text(json);
}

}  // namespace tanren
