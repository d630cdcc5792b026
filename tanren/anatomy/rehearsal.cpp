#include "tanren/anatomy/rehearsal.h"

#include "tanren/base/seconds.h"
#include "tanren/comm/communicator.h"
#include "tanren/run/fork_place.h"
#include "tanren/run/origin.h"
#include "tanren/run/start_files.h"
#include "tanren/train/device.h"
#include "tanren/train/explained.h"
#include "tanren/train/quantized_training.h"
#include "tanren/train/train_loop.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>

#include <chrono>
#include <utility>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

// The batch's token count, or the elements of [samples, tokens] integer inputs.
int64_t tokens_of(const GlobalBatch& batch) {
  if (const auto found = batch.counts.find("tokens"); found != batch.counts.end()) {
    return static_cast<int64_t>(found->second);
  }
  const at::Tensor* inputs = batch.local.fields.find("inputs");
  const bool sequences = inputs != nullptr && inputs->dim() == 2 &&
                         at::isIntegralType(inputs->scalar_type(), /*includeBool=*/false);
  return sequences ? inputs->numel() : 0;
}

}  // namespace

Rehearsal::Rehearsal(const RunConfig& config, const Registry& registry, Datasets datasets,
                     const std::function<void(const char*, at::Device)>& stage,
                     const std::filesystem::path& checkpoint) {
  const bool resumes = !checkpoint.empty();
  const auto kept = resumes ? run_of_checkpoint(checkpoint) : std::filesystem::path();
  Prepared prepared = prepare(without_stages(config, registry), registry, resumes, kept,
                              {.datasets = std::move(datasets)});
  if (resumes) {
    check_same_program(kept, program_of(config.model, prepared.task));
    const Facts data = data_facts(*prepared.datasets.train, prepared.datasets.eval.get());
    check_data_unchanged(*single_communicator(), read_origin(checkpoint).data, data, checkpoint,
                         config);
  }
  fit(prepared);
  if (prepared.quantization && !resumes) {
    (void)begin_quantized(prepared.plain, *prepared.quantization, prepared.plan,
                          *prepared.datasets.train);
  }
  if (stage) stage("weights loaded", at::Device(prepared.plan.device.device));
  make_task_ = std::move(prepared.fit.make_task);
  counts_ = prepared.fit.counts;
  config_ = std::move(prepared.config);
  datasets_ = std::move(prepared.datasets);
  parts_ = build_parts(prepared.plan, /*stop=*/nullptr, registry.accelerators);
  waits_.emplace(prepared.plan.device.threads);
  state_ = build_run_state(std::move(prepared.task), parts_);
  if (resumes) load_checkpoint(state_, checkpoint, parts_);
  if (prepared.optimizer) start_optimizer(state_, *prepared.optimizer);
  for (auto& phase : state_.phases) {
    auto& forward = phase.spec.forward;
    forward = [this, inner = std::move(forward)](const Batch& batch) {
      if (recorder_ != nullptr) recorder_->begin_forward();
      Terms terms = inner(batch);
      if (recorder_ != nullptr) recorder_->end_forward();
      return terms;
    };
  }
  if (stage) stage("gradients and optimizer built", parts_.device);
  use_loader(-1);
}

void Rehearsal::use_learning_rate(double rate) {
  parts_.plan.average.learning_rate = 0;
  const double first = state_.phases.front().objectives.front().plan.optimizer.learning_rate;
  for (auto& phase : state_.phases) {
    for (auto& objective : phase.objectives) {
      double& own = objective.plan.optimizer.learning_rate;
      own = own / first * rate;
      objective.plan.schedule = {};  // constant
      objective.plateau = Plateau(objective.plan.schedule, own);
    }
  }
}

void Rehearsal::use_loader(int64_t workers) {
  Parts parts = parts_;
  if (workers >= 0) parts.plan.data.workers = workers;
  loader_.reset();
  loader_.emplace(make_loader(state_, parts, *datasets_.train));
}

StepReport Rehearsal::step(OperatorRecorder* recorder) {
  apply_device_plan(parts_.plan);
  const auto wait = finish();
  if (wait) wait();
  const auto start = Clock::now();
  const GlobalBatch batch = loader_->next();
  const double waited = seconds_since(start);
  tokens_ = tokens_of(batch);
  recorder_ = recorder;
  if (recorder != nullptr) recorder->begin_step();
  MemoryState memory;
  StepReport report = *explained_update(state_, parts_, batch, *datasets_.train, memory);
  if (wait) wait();
  if (recorder != nullptr) recorder->end_step();
  recorder_ = nullptr;
  report.seconds = seconds_since(start);
  report.wait_seconds = waited;
  return report;
}

std::function<void()> Rehearsal::finish() const {
  if (parts_.device.is_cpu()) return {};
  return [index = parts_.device.index()] { at::accelerator::synchronizeDevice(index); };
}

}  // namespace tanren
