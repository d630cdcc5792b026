#include "tanren/post_training/quantize_model.h"

#include "tanren/base/error.h"
#include "tanren/data/collated.h"
#include "tanren/post_training/layer_choice.h"
#include "tanren/quantize/quantized_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
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

std::vector<Collated> first_of(const Dataset& dataset, int64_t most) {
  std::vector<Collated> batches;
  const int64_t size = std::min(most, dataset.size());
  for (int64_t begin = 0; begin < size; begin += kAtOnce) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(kAtOnce, size - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    batches.push_back(collated(dataset, indices));
  }
  return batches;
}

}  // namespace

void quantize(WholeModel& model, const Dataset& samples, const QuantizeOptions& options) {
  check_options(options);
  if (!model.quantized.empty()) {
    throw InputError("[quantize] the model has 8-bit weights already; give the one in fp32");
  }
  PostTraining training(model.task, first_of(samples, options.samples), options,
                        deciding_metric(model.task));
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
