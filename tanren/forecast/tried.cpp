#include "tanren/forecast/tried.h"

#include "tanren/base/generators.h"
#include "tanren/config/write_config.h"
#include "tanren/data/collated.h"
#include "tanren/plan/useful_threads.h"

#include <algorithm>
#include <exception>

namespace tanren {

namespace {

// Sizes of the largest operators, also for longer samples: the first sample may be shorter than the
// others in its batch.
OperatorSizes sizes_of(const StepPredictor& predictor, const Tried& tried) {
  OperatorSizes sizes = tried.prediction.largest;
  if (sizes.elements == 0 || tried.plan.device.threads < 2) return sizes;
  const int64_t own = predictor.length(), longest = own > 0 ? predictor.longest() : 0;
  if (longest <= own) return sizes;
  try {
    const OperatorSizes other = predictor.step(tried.plan, longest).largest;
    sizes.elements = std::max(sizes.elements, other.elements);
    sizes.multiply_adds = std::max(sizes.multiply_adds, other.multiply_adds);
  } catch (const std::exception&) {  // the run itself will report the error
  }
  return sizes;
}

}  // namespace

StepPredictor predictor_of(const FitInput& input, const RunConfig& config) {
  RunConfig of_any_microbatch = config;
  of_any_microbatch.batch.microbatch = 0;
  return {[&input, config] { return input.make_task(config); }, *input.dataset,
          ProbeOptions{.runs_dry = input.runs_dry,
                       .may_probe = input.may_probe,
                       .kept = input.probed,
                       .config = to_toml(of_any_microbatch),
                       .counts = input.counts}};
}

int64_t standing_beside(const FitInput& input, const Plan& plan) {
  if (plan.device.device != "cpu") return 0;  // the data are on the host
  if (!plan.memory.own_allocator || plan.data.workers == 0) return input.standing_bytes;
  const TensorMap before = generator_states(at::kCPU);  // a dataset may draw
  const Collated one = collated(*input.dataset, {0});
  set_generator_states(at::kCPU, before);
  int64_t bytes = 0;
  for (const auto& [name, field] : one.batch.fields) bytes += static_cast<int64_t>(field.nbytes());
  const int64_t loaders = plan.parallel.thread_ranks();
  return input.standing_bytes + loaders * plan.data.prefetch * plan.batch.per_rank * bytes;
}

Tried try_config(const FitInput& input, const RunConfig& config) {
  Tried result{config, input.plan(config), {}, false};
  const StepPredictor predictor = predictor_of(input, config);
  result.prediction = predictor.step(result.plan);
  if (limit_threads(sizes_of(predictor, result), result.plan)) {
    result.prediction = predictor.step(result.plan);  // some kernels take memory for each thread
  }
  const int64_t room = room_for_step(result.plan, standing_beside(input, result.plan));
  result.fits = fits(result.prediction.peak_bytes, room);
  return result;
}

}  // namespace tanren
