#include "tanren/train/quantized_training.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/quantize/calibration.h"
#include "tanren/quantize/fold.h"
#include "tanren/train/step_error.h"

#include <ATen/Parallel.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace tanren {

namespace {

// Samples of a forward that measures: few, so that any machine that trains can hold it, and not the
// plan's microbatch, which hangs on the number of ranks.
constexpr int64_t kMeasuredAtOnce = 8;
constexpr size_t kMostKeptShown = 3;

Batch first_samples(const Dataset& train) {
  std::vector<int64_t> indices(static_cast<size_t>(std::min<int64_t>(train.size(), 2)));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return collated(train, indices).batch;
}

// Calls `work`; a dataset may draw from the process's generator, which is restored.
template <class Work>
auto without_draws(const Work& work) {
  const TensorMap states = generator_states(at::kCPU);
  const auto restore = c10::make_scope_exit([&] { set_generator_states(at::kCPU, states); });
  return work();
}

}  // namespace

FakeQuantization find_quantization(const Task& task, const QuantizeOptions& options,
                                   const Dataset& train) {
  return without_draws([&] {
    try {
      return find_fake_quantization(task, first_samples(train),
                                    from_word<QuantizeScheme>(options.scheme), options.keep);
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

PlanLine quantization_line(const FakeQuantization& how) {
  std::map<WeightReader, int64_t> counts;
  for (const FakeLayer& layer : how.layers) ++counts[layer.reader];
  std::vector<std::string> readers;
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
    for (const auto& [weight, why] : how.kept) {
      if (kept.size() < kMostKeptShown) kept.push_back(fmt::format("{} ({})", weight, why));
    }
    const size_t more = how.kept.size() - kept.size();
    if (more > 0) kept.push_back(fmt::format("{} more", more));
    reason += "; " + join(kept) + (how.kept.size() == 1 ? " stays" : " stay");
  }
  const int64_t layers = std::ssize(how.layers);
  const int64_t all = layers + std::ssize(how.kept);
  return {"quantize.weights", fmt::format("{} of {}", to_text(layers), to_text(all)),
          Source::planned, reason};
}

void begin_quantized(const Task& plain, const FakeQuantization& how, const Plan& plan,
                     const Dataset& train) {
  const int threads = at::get_num_threads();
  const auto restore = c10::make_scope_exit([threads] { at::set_num_threads(threads); });
  const int64_t all = plan.device.threads * plan.parallel.thread_ranks();
  if (all > 0) at::set_num_threads(static_cast<int>(all));
  without_draws([&] {
    if (how.num_norms > 0) fold_batch_norms(plain, first_samples(train), Forwards::training_too);
    if (how.scheme != QuantizeScheme::calibrated) return;
    const int64_t samples = plan.quantize.samples;
    Calibration calibration(plain, how.readers(), plan.quantize.range);
    for (int64_t begin = 0; begin < samples; begin += kMeasuredAtOnce) {
      std::vector<int64_t> indices;
      const int64_t end = std::min(begin + kMeasuredAtOnce, samples);
      for (int64_t i = begin; i < end; ++i) indices.push_back(i * train.size() / samples);
      calibration.predict(collated(train, indices).batch);
    }
    set_input_scales(*plain.module, how, calibration.inputs());
  });
}

}  // namespace tanren
