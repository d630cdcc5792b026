#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace tanren {

namespace {

const char* what_becomes_8_bit(QuantizeScheme scheme) {
  switch (scheme) {
    case QuantizeScheme::none: return "";
    case QuantizeScheme::weights:
      return "the weights that linear layers, convolutions and embeddings read become int8, with a "
             "scale per output channel; inputs stay";
    case QuantizeScheme::dynamic:
      return "the weights that linear layers and embeddings read become int8, with a scale per "
             "output channel, and inputs of linear layers 8-bit, with a scale per row at run time; "
             "convolutions stay";
    case QuantizeScheme::calibrated:
      return "the weights that linear layers, convolutions and embeddings read become int8, with a "
             "scale per output channel, and inputs of linear layers and convolutions 8-bit, with a "
             "scale per layer";
  }
  return "";
}

// Describes what the patterns keep. ConfigError for a pattern that keeps nothing.
std::string kept_text(const std::vector<std::string>& keep, const ModelProfile& profile) {
  std::vector<std::string> names;
  for (const auto& parameter : profile.parameters) names.push_back(parameter.name);
  check_matches("[plan] quantize.keep", keep, names);
  int64_t tensors = 0, elements = 0;
  for (const auto& parameter : profile.parameters) {
    if (!matches_any(keep, parameter.name)) continue;
    ++tensors;
    elements += std::accumulate(parameter.shape.begin(), parameter.shape.end(), int64_t{1},
                                std::multiplies<>());
  }
  return fmt::format("{} of {} tensors, {} of {} parameters stay as they are", to_text(tensors),
                     to_text(std::ssize(names)), to_text(elements),
                     to_text(profile.num_parameters));
}

// The samples to measure on: all training data if they have fewer than were asked for.
int64_t samples_of(int64_t asked, int64_t available) {
  if (available < kFewestSamples) {
    throw ConfigError(
        fmt::format("[plan] quantize.scheme needs {} samples of training data to measure ranges, "
                    "and there are {}; take more data, or set it to none",
                    to_text(kFewestSamples), to_text(available)));
  }
  return std::min(asked, available);
}

// Refuses keys that only have a meaning with a scheme, because a run would ignore them. tanren
// quantize measures every scheme and removes these keys before it plans.
void refuse_without_scheme(const QuantizeOptions& asked) {
  const QuantizeOptions unset;
  const std::pair<const char*, bool> changed[] = {
      {"keep", asked.keep != unset.keep},
      {"samples", asked.samples != unset.samples},
      {"range", asked.range != unset.range},
      {"tolerance", asked.tolerance != unset.tolerance}};
  for (const auto& [key, is_changed] : changed) {
    if (!is_changed) continue;
    throw ConfigError(
        fmt::format("[plan] quantize.{} has no meaning for quantize.scheme \"none\"; "
                    "drop it, or set a scheme",
                    key));
  }
}

void tell(const Request& request, const QuantizePlan& quantize, const std::string& kept,
          Plan& plan) {
  const auto add = [&](const std::string& key, const std::string& value, Source source,
                       const std::string& reason) {
    plan.lines.push_back({key, value, source, reason});
  };
  add("quantize", name(quantize.scheme), Source::asked, what_becomes_8_bit(quantize.scheme));
  if (!quantize.keep.empty()) {
    add("quantize.keep", join(quantize.keep), request.source("quantize.keep"), kept);
  }
  const bool all = quantize.samples < request.config.quantize.samples;
  add("quantize.samples", to_text(quantize.samples),
      all ? Source::planned : request.source("quantize.samples"),
      std::string(all ? "all there are" : "of the training data") +
          ", on which ranges and errors are measured");
  if (quantize.scheme == QuantizeScheme::calibrated) {
    add("quantize.range", name(quantize.range), request.source("quantize.range"),
        quantize.range == RangeKind::mse
            ? "of a layer's inputs: the one whose 8-bit values have the least squared error"
            : "of a layer's inputs: from the least to the largest one seen");
  }
  add("quantize.tolerance", to_text(quantize.tolerance), request.source("quantize.tolerance"),
      "points of the metric, or per cent of a loss, that 8-bit layers may cost");
}

}  // namespace

void plan_quantize(const Request& request, Plan& plan) {
  const auto& asked = request.config.quantize;
  auto& quantize = plan.quantize;
  quantize.scheme = from_word<QuantizeScheme>(asked.scheme);
  if (quantize.scheme == QuantizeScheme::none) {
    refuse_without_scheme(asked);
    return;
  }
  const Mode mode = plan.precision.mode;
  if (mode == Mode::fp16) {
    throw ConfigError(fmt::format(
        "[plan] quantize.scheme \"{}\" trains in fp32, bf16 and fp64, and precision.mode is fp16; "
        "set it to one of them",
        asked.scheme));
  }
  const std::string kept = kept_text(asked.keep, request.profile);
  quantize.keep = asked.keep;
  quantize.samples = samples_of(asked.samples, request.profile.train_samples);
  quantize.range = from_word<RangeKind>(asked.range);
  quantize.tolerance = asked.tolerance;
  tell(request, quantize, kept, plan);
}

}  // namespace tanren
