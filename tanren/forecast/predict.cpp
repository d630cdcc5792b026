#include "tanren/forecast/predict.h"

#include "tanren/base/error.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/data/collated.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/forward_work.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/forecast/generator_scope.h"
#include "tanren/metrics/evaluation_metrics.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/precision/half_convolution.h"
#include "tanren/train/accumulate.h"
#include "tanren/train/build.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"
#include "tanren/train/train_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

namespace tanren {

namespace {

// Sets the plan's number of threads: some kernels take memory for each thread.
class ThreadsScope {
 public:
  explicit ThreadsScope(int64_t threads) : before_(at::get_num_threads()) {
    at::set_num_threads(static_cast<int>(threads));
  }
  ~ThreadsScope() { at::set_num_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

// Selects the kernels that the run will use (apply_device_plan).
void use_kernels_of(const Plan& plan) {
  if (plan.device.device == "cpu") enable_half_convolution();
}

int64_t length_of(const Batch& sample) {
  for (const auto& [name, field] : sample.fields) {
    if (field.dim() >= 2 && at::isIntegralType(field.scalar_type(), /*includeBool=*/false)) {
      return field.size(1);
    }
  }
  return 0;
}

// A batch of `size` samples with the fields of `one`. If `length` is above 0, its sequences have
// that many tokens.
GlobalBatch batch_like(const Collated& one, int64_t size, int64_t length) {
  GlobalBatch batch;
  batch.consumed = size;
  const int64_t own_length = length_of(one.batch);
  const MemoryScope memory(MemoryKind::batches);
  for (const auto& [name, field] : one.batch.fields) {
    std::vector<int64_t> sizes = field.sizes().vec();
    sizes.at(0) = size;
    if (length > 0 && sizes.size() >= 2 && sizes[1] == own_length) sizes[1] = length;
    batch.local.fields.set(name, at::empty(sizes, field.options()));
  }
  batch.local.ids = at::arange(size, at::kLong);
  for (const auto& [name, count] : one.counts) {
    batch.counts[name] = std::max(count, 1.0) * static_cast<double>(size);
  }
  return batch;
}

// The first samples of the data.
GlobalBatch real_batch(const Dataset& dataset, int64_t size) {
  std::vector<int64_t> indices(static_cast<size_t>(size));
  std::iota(indices.begin(), indices.end(), 0);
  Collated made = collated(dataset, indices);
  return {.local = std::move(made.batch),
          .counts = std::move(made.counts),
          .epoch = 0,
          .consumed = size};
}

// Shortens the plan to two microsteps. They show as much as many: a larger batch adds only the
// bytes of the batch itself.
Plan shortened(const Plan& plan) {
  Plan result = plan;
  result.precision.find_initial_scale = false;
  BatchPlan& batch = result.batch;
  batch.global_batch = std::min(batch.per_rank, 2 * batch.microbatch);
  batch.per_rank = batch.global_batch;
  return result;
}

int64_t trained_elements(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

// Stands in for the other ranks: whatever is sent has arrived at once.
class SilentRanks final : public Communicator {
 public:
  explicit SilentRanks(const ParallelPlan& plan)
      : rank_(static_cast<int>(plan.rank)), size_(static_cast<int>(plan.world_size)) {}
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }
  std::string_view name() const override { return "silent"; }
  Work start_sum(const at::Tensor&) override { return done(); }
  Work start_sum_scatter(const at::Tensor&, const at::Tensor&) override { return done(); }
  Work start_gather(const at::Tensor&, const at::Tensor&) override { return done(); }
  Work start_broadcast(const at::Tensor&, int) override { return done(); }
  void cancel(const std::string&) override {}

 private:
  class Done final : public Pending {
   public:
    void wait() override {}
  };
  static Work done() { return std::make_unique<Done>(); }

  int rank_, size_;
};

// One update as one rank makes it, without the other ranks, with every objective in turn.
void update_alone(RunState& run, const Parts& parts, const GlobalBatch& batch) {
  const Ranks ranks(std::make_shared<SilentRanks>(parts.plan.parallel), parts.plan.parallel);
  for (auto& phase : run.phases) {
    for (auto& objective : phase.objectives) objective.spec.every = 1;
    connect_reducer(phase, ranks);
  }
  update(run, parts, batch);
  for (auto& phase : run.phases) phase.reducer.reset();
}

using Live = std::map<uint32_t, MemoryEvent>;

MemoryPrediction summed(const MemoryTrace& trace, size_t before) {
  MemoryPrediction result;
  int64_t sum = 0;
  size_t peak = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    sum += trace[i].bytes;
    if (i + 1 == before) result.before_bytes = sum;
    if (i >= before && sum > result.peak_bytes) {
      result.peak_bytes = sum;
      peak = i;
    }
  }
  Live live;
  for (size_t i = 0; i <= peak && i < trace.size(); ++i) {
    if (trace[i].bytes > 0) {
      live[trace[i].tensor] = trace[i];
    } else {
      live.erase(trace[i].tensor);
    }
  }
  std::map<uint16_t, int64_t> blocks;
  for (const auto& [tensor, event] : live) {
    result.at_peak.at(static_cast<size_t>(event.kind)) += event.bytes;
    // (Casts of a block's weights stay for the window, whether the block is recomputed or not.)
    if (event.block != 0 && event.kind != MemoryKind::casts) blocks[event.block] += event.bytes;
  }
  for (const auto& [id, bytes] : blocks) result.blocks.push_back({block_name(id), bytes, 0});
  std::sort(result.blocks.begin(), result.blocks.end(),
            [](const auto& a, const auto& b) { return a.held_bytes > b.held_bytes; });
  return result;
}

// Bytes of one sample in a step: its fields, and their copies in another layout or a wider dtype.
int64_t bytes_in_step(const Batch& sample, const Plan& plan) {
  int64_t bytes = 0;
  for (const auto& [name, field] : sample.fields) {
    const auto own = static_cast<int64_t>(field.nbytes());
    bytes += own;
    if (!field.is_floating_point()) continue;
    const auto size = static_cast<int64_t>(c10::elementSize(parameter_dtype(plan.precision)));
    const bool casts = c10::elementSize(field.scalar_type()) != static_cast<size_t>(size);
    if (casts) bytes += field.numel() * size;
    if (plan.memory.channels_last && field.dim() == 4) bytes += casts ? field.numel() * size : own;
  }
  return bytes;
}

void add_batches(MemoryPrediction& prediction, int64_t bytes) {
  prediction.peak_bytes += bytes;
  prediction.before_bytes += bytes;
  prediction.at_peak.at(static_cast<size_t>(MemoryKind::batches)) += bytes;
}

// The trace of `samples` samples: each size is extrapolated linearly from the traces of one and of
// two samples.
MemoryTrace extrapolated(const MemoryTrace& one, const MemoryTrace& two, int64_t samples) {
  MemoryTrace result = one;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].bytes += (two[i].bytes - one[i].bytes) * (samples - 1);
  }
  return result;
}

bool are_alike(const MemoryTrace& one, const MemoryTrace& two) {
  return std::equal(one.begin(), one.end(), two.begin(), two.end(),
                    [](const MemoryEvent& a, const MemoryEvent& b) {
                      return a.tensor == b.tensor && (a.bytes > 0) == (b.bytes > 0);
                    });
}

}  // namespace

int64_t StepPredictor::length() const { return length_of(collated(dataset_, {0}).batch); }

int64_t StepPredictor::longest() const {
  constexpr int64_t kSamples = 16;
  return length_of(real_batch(dataset_, std::min(kSamples, dataset_.size())).local);
}

MemoryPrediction StepPredictor::step(const Plan& given, int64_t length) const {
  const GeneratorScope generators(at::kCPU);
  const ThreadsScope threads(given.device.threads);
  use_kernels_of(given);
  const Plan plan = shortened(given);
  const Collated one = collated(dataset_, {0});
  const TraceScope tracing;
  ForwardWork work;
  const DryScope dry(&work);
  const Parts parts{.plan = plan};
  RunState run = build_run_state(make_task_(), parts);
  const size_t before = tracing.trace().size();
  const GlobalBatch batch = batch_like(one, plan.batch.global_batch, length);
  work.largest = {};
  update_alone(run, parts, batch);
  MemoryPrediction result = summed(tracing.trace(), before);
  result.largest = work.largest;
  result.largest.parameters = trained_elements(*run.task.module);
  result.how = "a dry run";
  for (const auto& [id, count] : work.multiply_adds) {
    result.multiply_adds += count;
    for (auto& block : result.blocks) {
      if (block.name == block_name(id)) block.multiply_adds = count;
    }
  }
  const int64_t missing = given.batch.per_rank - plan.batch.global_batch;
  int64_t bytes = bytes_in_step(one.batch, plan);
  if (length > 0 && length_of(one.batch) > 0) bytes = bytes * length / length_of(one.batch);
  add_batches(result, missing * bytes);
  return result;
}

MemoryPrediction StepPredictor::probed_step(const Plan& given) const {
  const at::Device device(given.device.device);
  const GeneratorScope generators(device);
  const int64_t microsteps = given.batch.accumulation_steps > 1 ? 2 : 1;
  size_t before = 0;
  const auto trace_of = [&](int64_t samples) {
    Plan plan = shortened(given);
    plan.batch.microbatch = samples;
    plan.batch.global_batch = plan.batch.per_rank = samples * microsteps;
    const TraceScope tracing;
    const Parts parts{.plan = plan, .device = device};
    RunState run = build_run_state(make_task_(), parts);
    before = tracing.trace().size();
    const GlobalBatch batch = real_batch(dataset_, plan.batch.global_batch);
    update_alone(run, parts, batch);
    return tracing.trace();
  };
  const int64_t samples = given.batch.microbatch;
  const MemoryTrace one = trace_of(1);
  MemoryPrediction result;
  if (samples == 1) {
    result = summed(one, before);
  } else {
    const MemoryTrace two = trace_of(2);
    if (are_alike(one, two)) {
      result = summed(extrapolated(one, two, samples), before);
    } else {  // operators differ with the size: extrapolate the peaks
      const MemoryPrediction at_one = summed(one, before);
      result = summed(two, before);
      const int64_t more = (result.peak_bytes - at_one.peak_bytes) * (samples - 2);
      result.peak_bytes += more;
      result.at_peak.at(static_cast<size_t>(MemoryKind::activations)) += more;
    }
  }
  result.how = samples == 1 ? "a step of 1 sample" : "two steps of 1 and 2 samples";
  const int64_t missing = given.batch.per_rank - samples * microsteps;
  add_batches(result, missing * bytes_in_step(collated(dataset_, {0}).batch, given));
  return result;
}

int64_t StepPredictor::evaluation_peak(const Plan& plan, int64_t samples, bool trains) const {
  const GeneratorScope generators(at::kCPU);
  const ThreadsScope threads(plan.device.threads);
  use_kernels_of(plan);
  const Collated one = collated(dataset_, {0});
  const TraceScope tracing;
  const DryScope dry;
  const Parts parts{.plan = plan};
  const RunState run = build_run_state(make_task_(), parts, trains);
  check_predicts(run.task);
  const size_t before = tracing.trace().size();
  const Batch batch = prepared(batch_like(one, samples, 0).local, run.task, parts);
  run.task.module->eval();
  const at::NoGradGuard no_gradients;
  const AutocastScope autocast(parts.device.type(), plan.precision);
  EvaluationMetrics metrics(plan.evaluate.metrics, at::kMeta);
  const auto measure = [&](const Prediction& prediction) {
    const Prediction seen = as_planned(prediction, plan);
    metrics.add(seen.outputs, seen.targets);
  };
  if (run.task.predict_rows) {
    const PredictionRows rows = run.task.predict_rows(batch);
    measure(rows.part(0, std::min(rows.at_once, rows.rows)));
  } else {
    measure(run.task.predict(batch));
  }
  // The train loop keeps a copy of the buffers until the evaluation has a result.
  int64_t kept = 0;
  for (const at::Tensor& buffer : run.task.module->buffers()) {
    if (trains) kept += buffer.numel() * static_cast<int64_t>(buffer.element_size());
  }
  return summed(tracing.trace(), before).peak_bytes + kept;
}

}  // namespace tanren
