#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/post_training/report_cells.h"
#include "tanren/post_training/report_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {

namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  sizes.reserve(shape.size());
  for (const int64_t size : shape) sizes.push_back(to_text(size));
  return sizes.empty() ? kUnknown : join(sizes, "×");
}

std::string range_text(const LayerResult& layer) {
  if (!layer.input_range) return kUnknown;
  const auto [low, high] = *layer.input_range;
  if (!std::isfinite(low) || !std::isfinite(high)) return kUnknown;
  return digits_text(low, 3) + " … " + digits_text(high, 3);
}

// The error of a layer if it is known, else NaN.
double known_error(const LayerResult& layer) {
  const double error = layer.error.value_or(std::numeric_limits<double>::quiet_NaN());
  return std::isfinite(error) ? error : std::numeric_limits<double>::quiet_NaN();
}

std::string stored_as(const LayerResult& layer) { return layer.is_8_bit ? "int8" : "stays"; }

// "5 of 7 weights are in 8 bits, with 91.2 % of the model's bytes in fp32."
std::string eight_bit_line(const QuantizeReport& report) {
  size_t count = 0;
  double share = 0;
  for (const LayerResult& layer : report.layers) {
    if (!layer.is_8_bit) continue;
    ++count;
    share += layer.share;
  }
  return fmt::format("{} of {} weights are in 8 bits, with {} of the model's bytes in fp32.", count,
                     report.layers.size(), known_share(share));
}

// Lengths of bars on a scale of decades: the decade of the smallest error begins it, and the
// largest error has the full length. Errors that are 0 or not known have none.
std::vector<double> error_bars(const QuantizeReport& report) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const LayerResult& layer : report.layers) {
    const double error = known_error(layer);
    if (!(error > 0)) continue;
    least = std::min(least, error);
    most = std::max(most, error);
  }
  if (most == 0) return {};
  std::vector<double> bars(report.layers.size(), 0);
  const double from = std::ceil(std::log10(least)) - 1, length = std::log10(most) - from;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double error = known_error(report.layers[i]);
    if (error > 0) bars[i] = (std::log10(error) - from) / length;
  }
  return bars;
}

// A line for each reason why weights stay, with the first of their names.
std::vector<std::string> staying_lines(const QuantizeReport& report) {
  constexpr size_t kNames = 6;
  using Names = std::vector<std::string>;
  std::vector<std::pair<std::string, Names>> reasons;
  for (const LayerResult& layer : report.layers) {
    if (layer.is_8_bit) continue;
    const auto found = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& one) { return one.first == layer.why; });
    auto& names =
        found != reasons.end() ? found->second : reasons.emplace_back(layer.why, Names{}).second;
    names.push_back(one_line(layer.name));
  }
  std::vector<std::string> lines;
  for (auto& [why, names] : reasons) {
    const size_t count = names.size();
    names.resize(std::min(count, kNames));
    std::string line = "stays (" + one_line(why) + "): " + join(names);
    if (count > kNames) line += fmt::format(" and {} more", count - kNames);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

Table layer_table(const QuantizeReport& report) {
  Table table{"Layers",
              {"weight", "reader", "shape", "stored", "decision", "share", "input", "error"},
              {},
              5,
              ""};
  for (const LayerResult& layer : report.layers) {
    table.rows.push_back({one_line(layer.name), outside_text(layer.reader), shape_text(layer.shape),
                          stored_as(layer), one_line(layer.why), known_share(layer.share),
                          range_text(layer), digits_text(known_error(layer), 2)});
  }
  table.bars = error_bars(report);
  if (report.layers.empty()) {
    table.note = "none is in 8 bits";
    return table;
  }
  add_note(table, eight_bit_line(report));
  add_note(table,
           "error: of the outputs with this weight alone in 8 bits, relative and squared, its bar "
           "on a scale of decades; input: the range that the bytes of a static input cover; share: "
           "of the model's bytes in fp32.");
  return table;
}

Table worst_layer_table(const QuantizeReport& report, size_t most) {
  constexpr size_t kShortestName = 20;
  Table table{"Layers", {"weight", "shape", "input", "error", "share", "stored"}, {}, 1, "", true};
  std::vector<const LayerResult*> layers;
  for (const LayerResult& layer : report.layers) layers.push_back(&layer);
  const auto rank = [](const LayerResult* layer) {
    const double error = known_error(*layer);
    return std::isnan(error) ? -1 : error;
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const auto* a, const auto* b) { return rank(a) > rank(b); });
  const size_t shown = std::min(most, layers.size());
  for (size_t i = 0; i < shown; ++i) {
    const LayerResult& layer = *layers[i];
    table.rows.push_back({one_line(layer.name), shape_text(layer.shape), range_text(layer),
                          digits_text(known_error(layer), 2), known_share(layer.share),
                          stored_as(layer)});
  }
  if (layers.empty()) {
    table.note = "none is in 8 bits";
    return table;
  }
  int64_t others = 2;  // columns of all cells but the names
  for (size_t column = 1; column < table.head.size(); ++column) {
    int64_t width = display_width(table.head[column]);
    for (const auto& row : table.rows) width = std::max(width, display_width(row[column]));
    others += 2 + width;
  }
  const auto left = static_cast<size_t>(std::max<int64_t>(kReportColumns - others, 0));
  for (auto& row : table.rows) row[0] = middle_left_out(row[0], std::max(left, kShortestName));
  add_note(table, eight_bit_line(report));
  for (const auto& line : staying_lines(report)) add_note(table, line);
  if (layers.size() > shown) {
    add_note(table, fmt::format("The {} with the largest errors of {}; quantize.json has all.",
                                shown, layers.size()));
  }
  return table;
}

}  // namespace tanren
