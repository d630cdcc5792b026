#include "tanren/anatomy/anatomy.h"

#include "tanren/anatomy/advice.h"
#include "tanren/anatomy/rehearsal.h"
#include "tanren/config/kinds.h"
#include "tanren/data/collated.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/forecast/block_profile.h"
#include "tanren/forecast/generator_scope.h"
#include "tanren/forecast/predict.h"
#include "tanren/memory/gauge.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/memory_now.h"
#include "tanren/train/step_error.h"

#include <ATen/DeviceAccelerator.h>

#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <vector>

namespace tanren {

namespace {

constexpr int64_t kWarmUps = 2, kSteps = 3;
constexpr size_t kMoments = 300;  // of the memory plot

// Resident on the CPU; in use on an accelerator, by any process.
int64_t process_bytes(at::Device device) {
  if (!device.is_cpu()) {
    const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
    return static_cast<int64_t>(total - free);
  }
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// The current stage of `device`, whose tensors hold `tensors` bytes.
MemoryStage stage_now(const char* name, int64_t tensors, at::Device device) {
  const MemoryGauge gauge(device);
  MemoryStage stage{name, tensors, process_bytes(device), gauge.cached(), std::nullopt};
  if (!device.is_cpu()) stage.context = gauge.context();
  return stage;
}

int64_t live_in(const MemoryTrace& trace) {
  int64_t bytes = 0;
  for (const MemoryEvent& event : trace) bytes += event.bytes;
  return bytes;
}

// FLOPs of one update of one parameter, from the optimizer's formula; 0: kinds where the matrices'
// shapes decide.
int64_t update_flops(const std::string& kind) {
  constexpr int64_t kNormFlops = 2;  // of the gradients, measured before
  const OptimizerKind* found = optimizer_kind(kind);
  return found == nullptr || found->flops == 0 ? 0 : found->flops + kNormFlops;
}

// Bytes: weights and state are read and written; gradients are zeroed, measured and read.
UpdateWork update_work(const MemoryTimeline& memory, const AnatomySubject& subject,
                       const RunState& run) {
  const auto bytes = [&](MemoryKind of) { return memory.at_peak.at(static_cast<size_t>(of)); };
  const int64_t weights = subject.parameters == 0
                              ? 0
                              : bytes(MemoryKind::weights) / subject.parameters * subject.trainable;
  int64_t flops = 0;
  for (const Phase& phase : run.phases) {
    for (const Objective& objective : phase.objectives) {
      for (const NamedParameter& parameter : objective.parameters) {
        flops += update_flops(objective.plan.optimizer.kind) * parameter.tensor.numel();
      }
    }
  }
  return {flops, 2 * weights + 3 * bytes(MemoryKind::gradients) + 2 * bytes(MemoryKind::optimizer) +
                     2 * bytes(MemoryKind::averages)};
}

AnatomySubject subject_of(const Rehearsal& run) {
  const Plan& plan = run.plan();
  AnatomySubject subject;
  subject.name = plan.run.name;
  subject.model = plan.model.kind + (plan.model.size.empty() ? "" : " " + plan.model.size);
  subject.device = plan.device.device;
  subject.threads = plan.device.threads;
  subject.precision = name(plan.precision.mode);
  for (const ObjectivePlan& objective : plan.objectives) {
    const OptimizerOptions& o = objective.optimizer;
    const std::string text = o.kind + (o.state == "fp32" ? "" : " (" + o.state + " state)");
    const bool is_known = subject.optimizer == text || subject.optimizer.ends_with(", " + text);
    if (!is_known) subject.optimizer += (subject.optimizer.empty() ? "" : ", ") + text;
  }
  subject.global_batch = plan.batch.global_batch;
  subject.microbatch = plan.batch.microbatch;
  subject.tokens = run.tokens();
  subject.steps = kSteps;
  subject.is_graph = run.state().task.facts.graph.has_value();
  for (const auto& parameter : run.state().task.module->parameters()) {
    subject.parameters += parameter.numel();
    if (parameter.requires_grad()) subject.trainable += parameter.numel();
  }
  return subject;
}

// Runs one step and traces its memory, pass by pass.
MemoryTimeline traced_step(Rehearsal& run, const TraceScope& tracing) {
  const size_t begin = tracing.size();
  std::vector<PassMark> marks{{begin, Pass::update}};
  size_t backward_end = 0;
  OperatorRecorder::Hooks hooks;
  hooks.begin_forward = [&] {
    if (backward_end > 0) marks.push_back({backward_end, Pass::update});
    marks.push_back({tracing.size(), Pass::forward});
  };
  hooks.end_forward = [&] { marks.push_back({tracing.size(), Pass::backward}); };
  hooks.after_node = [&] { backward_end = tracing.size(); };
  {
    OperatorRecorder recorder(Detail::passes, run.finish(), std::move(hooks));
    measured_step(run, &recorder);
  }
  if (backward_end > 0) marks.push_back({backward_end, Pass::update});
  return memory_timeline_of(tracing.trace(), begin, marks, kMoments);
}

// Returns the seconds of each step.
std::vector<double> measure_times(Rehearsal& run, Anatomy& anatomy) {
  OperatorRecorder recorder(Detail::passes, run.finish());
  std::vector<double> seconds;
  for (int64_t i = 0; i < kSteps; ++i) {
    const StepReport step = measured_step(run, &recorder);
    anatomy.times.loader += step.wait_seconds / static_cast<double>(kSteps);
    seconds.push_back(step.seconds);
  }
  const PassTimes times = recorder.recording().times;
  anatomy.times.forward = times.forward / static_cast<double>(kSteps);
  anatomy.times.backward = times.backward / static_cast<double>(kSteps);
  anatomy.times.update = times.update / static_cast<double>(kSteps);
  return seconds;
}

void measure_operators(Rehearsal& run, Anatomy& anatomy) {
  OperatorRecorder recorder(Detail::operators, run.finish());
  for (int64_t i = 0; i < kSteps; ++i) {
    anatomy.listening_seconds +=
        measured_step(run, &recorder).seconds / static_cast<double>(kSteps);
  }
  anatomy.operators = recorder.recording();
}

void predict(const Rehearsal& run, Anatomy& anatomy) {
  try {
    const StepPredictor predictor([&] { return run.make_task(); }, run.dataset(), run.probes());
    const MemoryPrediction predicted = predictor.step(run.plan());
    anatomy.predicted = PredictedMemory{predicted.peak_bytes, predicted.at_peak};
  } catch (const std::exception& error) {  // the model takes other batches than these
    anatomy.not_predicted = said_by(error);
  }
}

// A model that cannot be run dry has no cuts, nor has one of several objectives.
void measure_cuts(const Rehearsal& run, Anatomy& anatomy) {
  const auto& phases = run.state().phases;
  if (phases.size() > 1 || phases.front().objectives.size() > 1) {
    anatomy.not_cut = "the run has several objectives";
    return;
  }
  const GeneratorScope generators(at::kCPU);  // a dataset may draw
  // Two samples: batch norm wants two values a channel.
  std::vector<int64_t> indices = {0};
  if (run.dataset().size() > 1) indices.push_back(1);
  try {
    const Batch batch = collated(run.dataset(), indices).batch;
    const auto make_task = [&] { return run.make_task(); };
    anatomy.cuts = measured_cuts(block_profile(run.plan(), make_task, batch), anatomy.operators);
    if (anatomy.cuts.empty()) anatomy.not_cut = "too few blocks end where another can begin";
  } catch (const std::exception& error) {
    anatomy.not_cut = said_by(error);
  }
}

}  // namespace

Anatomy dissect(const RunConfig& config, const Registry& registry, bool advises) {
  Anatomy anatomy;
  auto& stages = anatomy.stages;
  stages.push_back({"before anything"});
  stages.push_back(stage_now("context: the program itself", 0, at::kCPU));
  Datasets datasets = open_datasets(config.data, registry.datasets);

  auto tracing = std::make_unique<TraceScope>();
  BaseRun base;
  const auto told = [&](const char* stage, at::Device on) {
    // On an accelerator, asking for its memory creates the context; it holds nothing yet.
    if (!on.is_cpu() && stages.size() == 2) stages.back() = stage_now("context", 0, on);
    stages.push_back(stage_now(stage, live_in(tracing->trace()), on));
  };
  base.rehearsal = std::make_unique<Rehearsal>(config, registry, std::move(datasets), told);
  Rehearsal& run = *base.rehearsal;
  const at::Device device = run.parts().device;
  run.use_loader(0);  // so that the batch is traced too
  for (int64_t i = 1; i < kWarmUps; ++i) measured_step(run);
  anatomy.memory = traced_step(run, *tracing);
  tracing.reset();

  run.use_loader(-1);
  measured_step(run);
  base.seconds = measure_times(run, anatomy);
  stages.push_back({"peak of training", anatomy.memory.peak_bytes, memory_now(device)});
  stages.push_back(stage_now("after training", anatomy.memory.after_bytes, device));
  measure_operators(run, anatomy);

  anatomy.subject = subject_of(run);
  anatomy.subject.stages = config.parallel.pipeline;
  const auto finish = run.finish();
  anatomy.machine = measure_speed(device, dtype_of(run.plan().precision.mode), finish);
  anatomy.classes = class_rows(anatomy.operators, anatomy.times,
                               update_work(anatomy.memory, anatomy.subject, run.state()));
  measure_cuts(run, anatomy);
  predict(run, anatomy);
  if (!advises) return anatomy;
  base.peak = anatomy.memory.peak_bytes;
  base.loader_share = anatomy.times.loader / anatomy.times.total();
  AdviceFound found = advise(config, registry, base);
  anatomy.advice = std::move(found.advice);
  anatomy.tried = std::move(found.tried);
  return anatomy;
}

}  // namespace tanren
