#include "tanren/forecast/predict.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/data/collated.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/forward_work.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/forecast/dry_step.h"
#include "tanren/forecast/generator_scope.h"
#include "tanren/forecast/silent_ranks.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/metrics/evaluation_metrics.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/accumulate.h"
#include "tanren/train/build.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"
#include "tanren/train/train_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace tanren {

namespace {

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

// Whether a sample of the batch has the sizes of the only one of `one`.
bool has_sizes_of(const Batch& one, const Batch& batch) {
  return std::all_of(batch.fields.begin(), batch.fields.end(), [&](const auto& item) {
    const auto& [name, field] = item;
    return one[name].sizes().slice(1) == field.sizes().slice(1);
  });
}

// The first samples of the data if they have the sizes of the first one; otherwise `size` copies of
// the first one. So the size of a batch is proportional to its number of samples.
GlobalBatch even_batch(const Dataset& dataset, int64_t size) {
  const Batch one = collated(dataset, {0}).batch;
  if (size <= dataset.size()) {
    GlobalBatch batch = real_batch(dataset, size);
    if (has_sizes_of(one, batch.local)) return batch;
  }
  Collated made = collated(dataset, std::vector<int64_t>(static_cast<size_t>(size), 0));
  return {.local = std::move(made.batch),
          .counts = std::move(made.counts),
          .epoch = 0,
          .consumed = size};
}

// Shortens the plan to two microsteps. More microsteps would only add the bytes of the larger
// batch.
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

// While it lives, the tensors of real steps may take the plan's limit in addition to the memory
// already in use. It does not change a limit that is already set.
class ProbeLimitScope {
 public:
  explicit ProbeLimitScope(const Plan& plan)
      : limits_(plan.device.device == "cpu" && plan.memory.limit_bytes > 0 &&
                cpu_allocator_installed() && cpu_memory_limit() == 0),
        reserve_(cpu_memory_reserve()) {
    if (limits_) set_cpu_memory_limit(cpu_memory_stats().live_bytes + plan.memory.limit_bytes);
  }
  ~ProbeLimitScope() {
    if (limits_) set_cpu_memory_limit(0, reserve_);
  }
  ProbeLimitScope(const ProbeLimitScope&) = delete;
  ProbeLimitScope& operator=(const ProbeLimitScope&) = delete;

 private:
  bool limits_;
  int64_t reserve_;
};

// Whether a task's module, or the memory of one of its parameters or buffers, outlives the task.
// Other tasks of the factory would then share it.
bool is_kept(const std::function<Task()>& make_task) {
  std::weak_ptr<torch::nn::Module> module;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  {
    const Task task = make_task();
    module = task.module;
    std::vector<at::Tensor> tensors = task.module->parameters();
    for (const at::Tensor& buffer : task.module->buffers()) tensors.push_back(buffer);
    for (const at::Tensor& tensor : tensors) {
      if (tensor.has_storage()) storages.push_back(tensor.storage().getWeakStorageImpl());
    }
  }
  return !module.expired() || std::any_of(storages.begin(), storages.end(),
                                          [](const auto& each) { return !each.expired(); });
}

// Names of the module's buffers with a NaN.
std::set<std::string> buffers_with_nan(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined() || !item.value().is_floating_point()) continue;
    if (at::isnan(item.value()).any().item<bool>()) names.insert(item.key());
  }
  return names;
}

// The trace of `samples` samples: each size is extrapolated linearly from the two traces.
MemoryTrace extrapolated(const ProbedStep& step, int64_t samples) {
  MemoryTrace result = step.one;
  const int64_t between = std::max<int64_t>(step.num_samples_of_two - step.num_samples, 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t more = step.two[i].bytes - step.one[i].bytes;
    result[i].bytes += more * (samples - step.num_samples) / between;
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

std::string to_text(const SampleCounts& counts) {
  const bool has_most = counts.most < std::numeric_limits<int32_t>::max();
  std::string text = has_most ? fmt::format("{} to {}", counts.least, counts.most)
                              : fmt::format("at least {}", counts.least);
  if (counts.multiple > 1) text += fmt::format(" in multiples of {}", counts.multiple);
  return text;
}

int64_t StepPredictor::length() const { return sequence_length(collated(dataset_, {0}).batch); }

int64_t StepPredictor::longest() const {
  constexpr int64_t kSamples = 16;
  return sequence_length(real_batch(dataset_, std::min(kSamples, dataset_.size())).local);
}

Task StepPredictor::make_dry_task() const {
  constexpr const char* kWhat = "[dry run] the task says that it cannot run without values";
  if (!probes_.runs_dry) throw NeedsValues(kWhat);
  Task task = make_task_();
  if (!task.facts.runs_dry) throw NeedsValues(kWhat);
  return task;
}

MemoryPrediction StepPredictor::step(const Plan& given, int64_t length) const {
  try {
    return dry_step(given, length);
  } catch (const NeedsValues&) {
    if (!probes_.may_probe || length > 0) throw;
  }
  try {
    return probed_step(given);
  } catch (...) {
    std::throw_with_nested(
        Error("[plan] the model cannot run dry, and real steps of few samples, which would tell "
              "its memory, failed: " +
              line_of_current()));
  }
}

MemoryPrediction StepPredictor::dry_step(const Plan& given, int64_t length) const {
  const GeneratorScope generators(at::kCPU);
  const ThreadsScope threads(given.device.threads);
  use_kernels_of(given);
  const Plan plan = shortened(given);
  const Collated one = collated(dataset_, {0});
  const TraceScope tracing;
  ForwardWork work;
  const DryScope dry(device_type(given), &work);
  const Parts parts{.plan = plan};
  RunState run = build_run_state(make_dry_task(), parts);
  const size_t before = tracing.trace().size();
  const GlobalBatch batch = batch_like(one, plan.batch.global_batch, length);
  work.largest = {};
  update_alone(run, parts, batch);
  MemoryPrediction result = traced_peak(tracing.trace(), before);
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
  int64_t bytes = sample_bytes(one.batch, plan);
  if (length > 0 && sequence_length(one.batch) > 0)
    bytes = bytes * length / sequence_length(one.batch);
  add_batches(result, missing * bytes);
  add_workspaces(result, plan);
  return result;
}

ProbedStep StepPredictor::probe(const Plan& given, int64_t microsteps) const {
  const at::Device device(given.device.device);
  const GeneratorScope generators(device);
  const ThreadsScope threads(given.device.threads);
  use_kernels_of(given);
  const ProbeLimitScope limit(given);
  if (is_kept(make_task_)) {
    throw Error(
        "the factory keeps the module that it makes, or a tensor of it, and they would "
        "train it");
  }
  ProbedStep result;
  int64_t fewest = 1;
  const auto trace_of = [&](bool is_first) {
    const TraceScope tracing;
    Task task = make_task_();
    const SampleCounts& counts = probes_.counts;
    result.num_samples = std::max({task.facts.least_samples, counts.least, fewest});
    const int64_t last = counts.most - counts.most % counts.multiple;
    result.num_samples_of_two = result.num_samples > last / 2 ? last : 2 * result.num_samples;
    Plan plan = shortened(given);
    plan.precision.initial_scale = 1;  // an update that is skipped would put the buffers back
    plan.batch.microbatch = is_first ? result.num_samples : result.num_samples_of_two;
    plan.batch.global_batch = plan.batch.per_rank = plan.batch.microbatch * microsteps;
    const Parts parts{.plan = plan, .device = device};
    const std::set<std::string> had_nan = buffers_with_nan(*task.module);
    RunState run = build_run_state(std::move(task), parts);
    result.before = tracing.size();
    const GlobalBatch batch = even_batch(dataset_, plan.batch.global_batch);
    update_alone(run, parts, batch);
    MemoryTrace trace = tracing.trace();
    // torch's batch_norm accepts one row without an error, but its variance is NaN.
    const std::set<std::string> has_nan = buffers_with_nan(*run.task.module);
    if (plan.batch.microbatch == 1 &&
        !std::includes(had_nan.begin(), had_nan.end(), has_nan.begin(), has_nan.end())) {
      throw Error("a buffer has a NaN after a microbatch of one sample");
    }
    return trace;
  };
  try {
    result.one = trace_of(true);
  } catch (const MemoryError&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception&) {
    if (result.num_samples > 1 || probes_.counts.most < 2) throw;
    fewest = 2;
    result.one = trace_of(true);
  }
  result.two = result.num_samples_of_two > result.num_samples ? trace_of(false) : result.one;
  return result;
}

MemoryPrediction StepPredictor::probed_step(const Plan& given) const {
  const int64_t microsteps = given.batch.accumulation_steps > 1 ? 2 : 1;
  const int64_t samples = given.batch.microbatch;
  ProbedSteps unkept;
  ProbedSteps& kept = probes_.kept ? *probes_.kept : unkept;
  const std::string key = fmt::format("{} microsteps, {} threads\n{}", to_text(microsteps),
                                      to_text(given.device.threads), probes_.config);
  if (!kept.contains(key)) kept.emplace(key, probe(given, microsteps));
  const ProbedStep& probed = kept.at(key);
  const int64_t least = probed.num_samples, other = probed.num_samples_of_two;
  SampleCounts counts = probes_.counts;
  counts.least = least;
  if (!counts.has(samples)) {
    throw Error(
        fmt::format("the model takes {} samples at once, and this is a microbatch "
                    "of {}",
                    to_text(counts), to_text(samples)));
  }
  MemoryPrediction result;
  if (are_alike(probed.one, probed.two)) {
    result = traced_peak(extrapolated(probed, samples), probed.before);
  } else {  // operators differ with the size: extrapolate the peaks
    const MemoryPrediction at_one = traced_peak(probed.one, probed.before);
    result = samples <= least ? at_one : traced_peak(probed.two, probed.before);
    const int64_t more = samples <= least ? 0
                                          : (result.peak_bytes - at_one.peak_bytes) *
                                                (samples - other) / (other - least);
    result.peak_bytes += more;
    result.at_peak.at(static_cast<size_t>(MemoryKind::activations)) += more;
  }
  result.is_dry = false;
  result.least_samples = least;
  result.how = other > least
                   ? fmt::format("two steps of {} and {} samples", to_text(least), to_text(other))
                   : fmt::format("a step of {} samples", to_text(least));
  const int64_t missing = given.batch.per_rank - samples * microsteps;
  add_batches(result, missing * sample_bytes(collated(dataset_, {0}).batch, given));
  return result;
}

int64_t StepPredictor::evaluation_peak(const Plan& plan, int64_t samples, bool trains) const {
  const GeneratorScope generators(at::kCPU);
  const ThreadsScope threads(plan.device.threads);
  use_kernels_of(plan);
  const Collated one = collated(dataset_, {0});
  const TraceScope tracing;
  const DryScope dry(device_type(plan));
  const Parts parts{.plan = plan};
  const RunState run = build_run_state(make_dry_task(), parts, trains);
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
  MemoryPrediction result = traced_peak(tracing.trace(), before);
  add_workspaces(result, plan, trains);
  return result.peak_bytes + kept;
}

}  // namespace tanren
