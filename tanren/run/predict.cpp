#include "tanren/run/predict.h"

#include "tanren/base/dry_scope.h"
#include "tanren/base/generators.h"
#include "tanren/base/trace_scope.h"
#include "tanren/run/build.h"
#include "tanren/train/train_step.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {

namespace {

// `size` samples like the given one.
GlobalBatch batch_like(const Dataset& dataset, int64_t size) {
  const auto one = dataset.collate({0});
  GlobalBatch batch;
  batch.consumed = size;
  {
    const MemoryScope memory(MemoryKind::batches);
    for (const auto& [name, field] : one.batch.fields) {
      std::vector<int64_t> sizes = field.sizes().vec();
      sizes.at(0) = size;
      batch.local.fields.set(name, at::empty(sizes, field.options()));
    }
  }
  batch.local.ids = at::arange(size, at::kLong);
  for (const auto& [name, count] : one.counts)
    batch.counts[name] = count * static_cast<double>(size);
  return batch;
}

MemoryPrediction summed(const MemoryTrace& trace, size_t before) {
  MemoryPrediction result;
  std::array<int64_t, kNumMemoryKinds> live = {};
  int64_t sum = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    live.at(static_cast<size_t>(trace[i].kind)) += trace[i].bytes;
    sum += trace[i].bytes;
    if (i + 1 == before) result.before_bytes = sum;
    if (i >= before && sum > result.peak_bytes) {
      result.peak_bytes = sum;
      result.at_peak = live;
    }
  }
  return result;
}

}  // namespace

MemoryPrediction predict_step(const std::function<Task()>& make_task, const Dataset& dataset,
                              const Plan& plan) {
  const TensorMap generators = generator_states(at::kCPU);
  const TraceScope tracing;
  const DryScope dry;
  const Parts parts{.plan = plan};
  RunState run = build_run_state(make_task(), parts);
  const size_t before = tracing.trace().size();
  const GlobalBatch batch = batch_like(dataset, plan.batch.global_batch);
  for (auto& phase : run.phases) update(phase, run, parts, batch);
  set_generator_states(at::kCPU, generators);
  return summed(tracing.trace(), before);
}

}  // namespace tanren
