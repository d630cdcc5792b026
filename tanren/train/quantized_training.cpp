#include "tanren/train/quantized_training.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/quantize/calibration.h"
#include "tanren/quantize/fold.h"
#include "tanren/quantize/quantized_names.h"
#include "tanren/train/freezing.h"
#include "tanren/train/step_error.h"

#include <ATen/Parallel.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// Samples per measuring forward. The number is small, so that it fits wherever training does. It is
// not the plan's microbatch, because that depends on the number of ranks.
constexpr int64_t kMeasuredAtOnce = 8;
constexpr size_t kMostShown = 3;

Batch first_samples(const Dataset& train) {
  std::vector<int64_t> indices(static_cast<size_t>(std::min<int64_t>(train.size(), 2)));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return collated(train, indices).batch;
}

std::vector<std::string> first_of(std::vector<std::string> all) {
  if (all.size() <= kMostShown) return all;
  const size_t more = all.size() - kMostShown;
  all.resize(kMostShown);
  all.push_back(fmt::format("{} more", more));
  return all;
}

// `weights`: the weights whose layers read only one constant number.
std::optional<PlanLine> constant_line(const std::vector<std::string>& weights, int64_t samples) {
  if (weights.empty()) return std::nullopt;
  return PlanLine{"quantize.constant", join(first_of(weights)), Source::planned,
                  fmt::format("the inputs were one number alone in the {} samples that measured "
                              "them, and all others are clamped; quantize.keep leaves such a "
                              "weight as it is",
                              to_text(samples))};
}

// Calls `work`; a dataset may draw from the process's generator, which is restored.
template <class Work>
auto without_draws(const Work& work) {
  const TensorMap states = generator_states(at::kCPU);
  const auto restore = c10::make_scope_exit([&] { set_generator_states(at::kCPU, states); });
  return work();
}

}  // namespace

FakeQuantization find_quantization(const Task& task, const RunConfig& config,
                                   const Dataset& train) {
  const QuantizeOptions& options = config.quantize;
  return without_draws([&] {
    try {
      FakeQuantization how = find_fake_quantization(
          task, first_samples(train), from_word<QuantizeScheme>(options.scheme), options.keep);
      std::map<std::string, std::vector<std::string>> names;  // of a weight, by its first name
      for (const FakeLayer& layer : how.layers) names[layer.first].push_back(layer.name);
      for (FakeLayer& layer : how.layers) {
        const std::string scale = quantized_names(layer.first).input_scale;
        layer.trains_scale = trains_scale_alone(config.model, scale, names.at(layer.first));
      }
      return how;
    } catch (const ConfigError&) {
      throw;
    } catch (const DataError&) {
      throw;
    } catch (const std::exception& error) {
      throw ConfigError(fmt::format(
          "[quantize] quantize.scheme is {}, and which weights become 8-bit is not known, since "
          "the model's forward cannot be run without values: {}; set it to none",
          options.scheme, said_by(error)));
    }
  });
}

std::set<std::string> led_scales(const FakeQuantization& how) {
  std::set<std::string> led = input_scale_names(how);
  for (const FakeLayer& layer : how.layers) {
    if (layer.trains_scale) led.erase(quantized_names(layer.first).input_scale);
  }
  return led;
}

void note_scales(const FakeQuantization& how, ModelProfile& profile) {
  std::map<std::string, std::string> weights;
  for (const FakeLayer& layer : how.layers) {
    weights.emplace(quantized_names(layer.first).input_scale, layer.first);
  }
  const std::set<std::string> own = input_scale_names(how);
  for (ParameterFacts& parameter : profile.parameters) {
    if (own.count(parameter.name) > 0) parameter.follows = weights.at(parameter.name);
  }
}

PlanLine quantization_line(const FakeQuantization& how) {
  std::map<WeightReader, int64_t> counts;
  for (const FakeLayer& layer : how.layers) ++counts[layer.reader];
  std::vector<std::string> readers;
  readers.reserve(counts.size());
  for (const auto& [reader, count] : counts) {
    readers.push_back(fmt::format("{} {}", to_text(count), name(reader)));
  }
  std::string reason =
      "read by " + join(readers) + "; rounded as the 8-bit model's in each forward";
  if (how.scheme == QuantizeScheme::calibrated) reason += ", scales of inputs are trained";
  if (how.num_norms > 0) {
    reason += fmt::format(
        "; {} batch norms are folded where a convolution is before them, and in "
        "eval mode",
        to_text(how.num_norms));
  }
  if (!how.kept.empty()) {
    std::vector<std::string> kept;
    for (const auto& [weight, why] : how.kept) kept.push_back(fmt::format("{} ({})", weight, why));
    reason += "; " + join(first_of(std::move(kept))) + (how.kept.size() == 1 ? " stays" : " stay");
  }
  const int64_t layers = std::ssize(how.layers);
  const int64_t all = layers + std::ssize(how.kept);
  return {"quantize.weights", fmt::format("{} of {}", to_text(layers), to_text(all)),
          Source::planned, reason};
}

std::optional<PlanLine> scales_line(const FakeQuantization& how, const Plan& plan) {
  const std::set<std::string> own = input_scale_names(how);
  // Whether a group is of scales alone.
  const auto has_group = [&](const OptimizerOptions& options) {
    return std::any_of(options.groups.begin(), options.groups.end(), [&](const auto& group) {
      return group.learning_rate_scale &&
             std::any_of(how.layers.begin(), how.layers.end(), [&](const FakeLayer& layer) {
               const std::string scale = quantized_names(layer.name).input_scale;
               return own.count(scale) > 0 && matches_alone(group.parameters, scale, {layer.name});
             });
    });
  };
  for (const ObjectivePlan& objective : plan.objectives) {
    const OptimizerOptions& options = objective.optimizer;
    if (own.empty() || options.kind == "sgd" || has_group(options)) continue;
    return PlanLine{
        "quantize.scales", "learning rate " + to_text(options.learning_rate), Source::planned,
        options.kind +
            " moves the scale of an input by about that in each update, whatever its size; give "
            "scales a lower one: a table [[optimizer.groups]] with parameters = "
            "[\"*.input_scale\"] and learning_rate_scale = 0.1"};
  }
  return std::nullopt;
}

std::optional<PlanLine> begin_quantized(const Task& plain, const FakeQuantization& how,
                                        const Plan& plan, const Dataset& train) {
  const int threads = at::get_num_threads();
  const auto restore = c10::make_scope_exit([threads] { at::set_num_threads(threads); });
  const int64_t all = plan.device.threads * plan.parallel.thread_ranks();
  if (all > 0) at::set_num_threads(static_cast<int>(all));
  return without_draws([&]() -> std::optional<PlanLine> {
    if (how.num_norms > 0) fold_batch_norms(plain, first_samples(train), Forwards::training_too);
    if (how.scheme != QuantizeScheme::calibrated) return std::nullopt;
    const int64_t samples = plan.quantize.samples;
    Calibration calibration(plain, how.readers(), plan.quantize.range);
    for (int64_t begin = 0; begin < samples; begin += kMeasuredAtOnce) {
      std::vector<int64_t> indices;
      const int64_t end = std::min(begin + kMeasuredAtOnce, samples);
      for (int64_t i = begin; i < end; ++i) indices.push_back(i * train.size() / samples);
      calibration.predict(collated(train, indices).batch);
    }
    set_input_scales(*plain.module, how, calibration.inputs());
    return constant_line(calibration.with_constant_input(), samples);
  });
}

}  // namespace tanren
