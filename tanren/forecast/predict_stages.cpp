#include "tanren/forecast/predict_stages.h"

#include "tanren/base/text.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/forecast/dry_step.h"
#include "tanren/forecast/generator_scope.h"
#include "tanren/forecast/silent_ranks.h"
#include "tanren/forecast/stages.h"
#include "tanren/train/build.h"
#include "tanren/train/pipeline.h"
#include "tanren/train/train_step.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>

namespace tanren {

namespace {

// Number of microbatches of a dry window with gpipe. The second microbatch stands for all that are
// left out. The first is different because it makes the tensors that stay for the window. There
// must be five, because the fourth one's input is received when the third begins, and the fourth
// must not be the last one, which may be short.
constexpr int64_t kGpipeMicrobatches = 5;

int64_t num_microbatches(const BatchPlan& batch) {
  return batch.microbatch > 0 ? (batch.per_rank + batch.microbatch - 1) / batch.microbatch : 1;
}

// Number of samples in `count` microbatches (or fewer, if there are fewer): the first ones and the
// last one, which may be short.
int64_t samples_of(const BatchPlan& batch, int64_t count) {
  const int64_t left_out = std::max<int64_t>(num_microbatches(batch) - count, 0);
  return batch.per_rank - left_out * batch.microbatch;
}

// The plan of one shorter window that has enough microbatches to predict a long one. With gpipe all
// microbatches are in flight, and each holds the same. With 1f1b at most as many microbatches are
// in flight as there are stages, and at most twice as many messages.
Plan of_one_window(const Plan& plan) {
  Plan result = plan;
  result.precision.find_initial_scale = false;
  BatchPlan& batch = result.batch;
  if (plan.parallel.schedule == PipelineSchedule::one_f_one_b) {
    const int64_t microbatches = 2 * plan.parallel.pipeline + 2;
    batch.per_rank = std::min(batch.per_rank, microbatches * batch.microbatch);
  } else {
    batch.per_rank = samples_of(batch, kGpipeMicrobatches);
  }
  batch.global_batch = batch.per_rank;
  return result;
}

// The trace of a window with `copies` more microbatches in flight. Each copy holds its tensors as
// long as the microbatch whose forward has the events [begin, end).
MemoryTrace with_copies(const MemoryTrace& trace, size_t begin, size_t end, int64_t copies) {
  uint32_t tensors = 0;
  std::map<uint32_t, MemoryEvent> held;
  for (size_t i = 0; i < trace.size(); ++i) {
    tensors = std::max(tensors, trace[i].tensor + 1);
    if (i < begin || i >= end) continue;
    if (trace[i].bytes > 0) {
      held[trace[i].tensor] = trace[i];
    } else {
      held.erase(trace[i].tensor);
    }
  }
  MemoryTrace longer(trace.begin(), trace.begin() + static_cast<std::ptrdiff_t>(end));
  const auto add = [&](MemoryEvent event) {
    event.bytes *= copies;
    event.tensor += tensors;
    longer.push_back(event);
  };
  for (const auto& [tensor, event] : held) add(event);
  for (size_t i = end; i < trace.size(); ++i) {
    longer.push_back(trace[i]);
    if (trace[i].bytes < 0 && held.count(trace[i].tensor) > 0) add(trace[i]);
  }
  return longer;
}

int64_t bytes_at(const MemoryTrace& trace, size_t end) {
  int64_t sum = 0;
  for (size_t i = 0; i < end; ++i) sum += trace[i].bytes;
  return sum;
}

int64_t most_before(const MemoryTrace& trace, size_t end) {
  int64_t sum = 0, most = 0;
  for (size_t i = 0; i < end; ++i) most = std::max(most, sum += trace[i].bytes);
  return most;
}

// Sets the terms of the loss. In a real run the ranks agree on them in their first window, but here
// the other ranks do not exist.
void agree_on_terms(Phase& phase, bool is_last) {
  if (!is_last) {
    phase.terms = {{.name = "loss", .count_name = "samples"}};
    return;
  }
  phase.spec.forward = [&phase, forward = phase.spec.forward](const Batch& piece) {
    Terms terms = forward(piece);
    if (phase.terms.empty()) {
      for (const Term& term : terms) phase.terms.push_back({term.name, term.count_name});
    }
    return terms;
  };
}

std::string tied_names(const StagePlan& stage) {
  std::string names;
  for (const auto& [name, holders] : stage.holders) {
    if (stage.is_tied(name) && stage.holds(name)) names += name + "\n";
  }
  return names;
}

// One of the first samples, of those with the most tokens.
Collated longest_sample(const Dataset& dataset) {
  constexpr int64_t kSamples = 64;
  const GeneratorScope generators(at::kCPU);  // a dataset may draw
  Collated longest = collated(dataset, {0});
  for (int64_t i = 1; i < std::min(kSamples, dataset.size()); ++i) {
    if (sequence_length(longest.batch) == 0) break;
    Collated other = collated(dataset, {i});
    if (sequence_length(other.batch) > sequence_length(longest.batch)) longest = std::move(other);
  }
  return longest;
}

}  // namespace

StagesPredictor::StagesPredictor(const Plan& plan, const ModelBlocks& blocks,
                                 std::function<Task()> make_task, const Dataset& dataset)
    : plan_(of_one_window(plan)),
      blocks_(blocks),
      make_task_(std::move(make_task)),
      one_(longest_sample(dataset)),
      samples_(plan.batch.per_rank),
      passed_on_samples_(samples_of(plan.batch, 2 * plan.parallel.pipeline + 3)) {
  if (plan.parallel.schedule != PipelineSchedule::gpipe) return;
  missing_microbatches_ = num_microbatches(plan.batch) - num_microbatches(plan_.batch);
}

std::vector<StagePrediction> StagesPredictor::of(const PipelineCut& cut) {
  const GeneratorScope generators(at::kCPU);
  const ThreadsScope threads(plan_.device.threads);
  use_kernels_of(plan_);
  std::vector<StagePlan> stages;
  {
    const DryScope dry(device_type(plan_));
    stages = stage_plans(blocks_, cut, *make_task_().module);
  }
  std::vector<StagePrediction> predictions;
  KnownShapes before;
  for (StagePlan& stage : stages) {
    stage.replicas = plan_.parallel.data_size();
    stage.schedule = plan_.parallel.schedule;
    const Key key(stage.stage, stage.blocks.begin, stage.blocks.end, tied_names(stage));
    auto found = known_.find(key);
    if (found == known_.end()) found = known_.emplace(key, run(stage, before)).first;
    predictions.push_back(found->second.prediction);
    before = found->second.shapes;
  }
  return predictions;
}

StagesPredictor::Known StagesPredictor::run(const StagePlan& stage,
                                            const KnownShapes& before) const {
  Plan plan = plan_;
  plan.parallel.rank = stage.stage * plan.parallel.data_size();
  const TraceScope tracing;
  const DryScope dry(device_type(plan_));
  Task task = make_task_();
  const size_t made = tracing.size();
  Parts parts{.plan = plan};
  parts.ranks = std::make_shared<const Ranks>(silent_axes(plan.parallel), plan.parallel);
  parts.stage = std::make_shared<const StagePlan>(stage);
  RunState run = build_run_state(std::move(task), parts);
  const size_t start = tracing.size();
  Phase& phase = run.phases.front();
  // With gpipe, whether this stage only passes microbatches on and keeps nothing of them.
  const bool passes_on = plan.parallel.schedule == PipelineSchedule::gpipe && !stage.is_last() &&
                         !trains_below(phase, stage, stage.stage + 1);
  const int64_t samples = passes_on ? passed_on_samples_ : plan.batch.global_batch;
  const GlobalBatch batch = batch_like(one_, samples, /*length=*/0);
  for (Objective& objective : phase.objectives) objective.spec.every = 1;
  phase.stage_shapes.received = before.sent;
  agree_on_terms(phase, stage.is_last());
  std::vector<size_t> begun;  // of each forward
  phase.spec.forward = [&, forward = phase.spec.forward](const Batch& piece) {
    begun.push_back(tracing.size());
    return forward(piece);
  };
  update(run, parts, batch);
  Known known;
  known.shapes = phase.stage_shapes;
  MemoryTrace trace = tracing.trace();
  if (missing_microbatches_ > 0 && !passes_on) {
    trace = with_copies(trace, begun.at(1), begun.at(2), missing_microbatches_);
  }
  known.prediction.step = traced_peak(trace, start);
  known.prediction.step.how = "a dry run of each stage";
  const int64_t length = sequence_length(one_.batch);
  if (length > 0) known.prediction.step.how += fmt::format(" with samples of length {}", length);
  known.prediction.whole_bytes = bytes_at(trace, made);
  known.prediction.start_bytes = most_before(trace, start);
  add_batches(known.prediction.step, (samples_ - samples) * sample_bytes(one_.batch, plan));
  add_workspaces(known.prediction.step, plan);
  return known;
}

}  // namespace tanren
