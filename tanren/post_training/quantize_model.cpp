#include "tanren/post_training/quantize_model.h"

#include "tanren/base/error.h"
#include "tanren/post_training/calibration_samples.h"
#include "tanren/post_training/layer_choice.h"
#include "tanren/quantize/quantized_task.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace tanren {

namespace {

constexpr int64_t kAtOnce = 32;  // samples of a forward

void check_options(const QuantizeOptions& options) {
  if (options.scheme != "weights" && options.scheme != "dynamic" && options.scheme != "static") {
    throw ConfigError("[quantize] scheme is \"" + options.scheme +
                      "\"; set it to weights, dynamic or static");
  }
  if (options.range != "mse" && options.range != "minmax") {
    throw ConfigError("[quantize] range is \"" + options.range + "\"; set it to mse or minmax");
  }
  if (options.samples < kFewestSamples) {
    throw ConfigError(fmt::format("[quantize] samples is {}; it must be at least {}",
                                  options.samples, kFewestSamples));
  }
  if (!(options.tolerance >= 0)) {
    throw ConfigError(
        fmt::format("[quantize] tolerance is {}; it must be 0 or more", options.tolerance));
  }
}

}  // namespace

void quantize(WholeModel& model, const Dataset& samples, const QuantizeOptions& options) {
  check_options(options);
  if (!model.quantized.empty()) {
    throw InputError("[quantize] the model has 8-bit weights already; give the one in fp32");
  }
  const auto numbers = spread_over(samples.size(), options.samples);
  PostTraining training(model.task, batches_of(samples, numbers, kAtOnce), options,
                        deciding_metric(model.task), TermWeights(model.task, model.config));
  SchemeWeights made =
      training.weights(from_word<QuantizeScheme>(options.scheme), /*wants_errors=*/false);
  if (made.parameters.empty()) {
    throw InputError(fmt::format(
        "[quantize] no layer can be 8-bit under scheme {} within the tolerance {}; take another "
        "scheme or a larger tolerance",
        options.scheme, options.tolerance));
  }
  model.task = quantized(std::move(model.task), made.parameters);
  model.quantized = made.note(options, training.num_samples());
  model.eight_bit = std::move(made.parameters);
}

}  // namespace tanren
