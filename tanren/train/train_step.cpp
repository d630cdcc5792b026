#include "tanren/train/train_step.h"

#include "tanren/base/memory_tag.h"
#include "tanren/memory/attempt.h"
#include "tanren/optimizer/average.h"
#include "tanren/optimizer/clip.h"
#include "tanren/optimizer/schedule.h"
#include "tanren/train/accumulate.h"
#include "tanren/train/check_terms.h"
#include "tanren/train/culprit.h"
#include "tanren/train/freezing.h"
#include "tanren/train/on_ranks.h"
#include "tanren/train/scale_search.h"
#include "tanren/train/share_buffers.h"
#include "tanren/train/undo.h"
#include "tanren/train/window.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace tanren {

namespace {

void begin(Phase& phase, RunState& run, const Parts& parts) {
  const DataParallel& parallel = *parts.parallel;
  unfreeze(run, parts.plan.freeze, /*tells=*/parallel.is_first(), &parallel.communicator());
  connect_reducer(phase, parallel);
  reseed(run, parallel, Draws::update);
  if (!parts.plan.parallel.overlap || !phase.spec.forward_on_one_thread) run.settle();
}

// Accumulates and measures the window. Empty if a stop was requested; then nothing has changed.
std::optional<WindowStatus> accumulate_and_measure(Phase& phase, RunState& run, const Parts& parts,
                                                   const GlobalBatch& batch, LossMeter& losses,
                                                   const Undo& undo) {
  try {
    if (!accumulate(phase, run, parts, batch, losses)) {
      undo.restore_all(phase);
      return std::nullopt;
    }
    if (losses.microsteps() > 0) check_grown(phase, *run.task.module);
    run.settle();  // a rank without samples has not waited yet
    return measure_window(phase, *run.task.module, parts, batch, losses);
  } catch (...) {  // a checkpoint of the state before the update may follow
    if (parts.parallel->alone()) undo.restore_after_error(phase);
    throw;
  }
}

ObjectiveReport judge(Objective& objective, const Status& status, const Parts& parts) {
  double norm = status.norm;
  if (!std::isfinite(norm) && std::isfinite(status.loss)) {
    norm = agreed_exact_norm(objective, parts);  // the sum of squares may just not fit fp32
  }
  const Verdict verdict = objective.guard.judge({.counted = status.uncounted.empty(),
                                                 .loss_finite = std::isfinite(status.loss),
                                                 .gradients_finite = std::isfinite(norm),
                                                 .can_back_off = objective.scaler.can_back_off(),
                                                 .loss = status.loss,
                                                 .grad_norm = norm});
  const double scheduled = learning_rate(parts.plan.schedule, parts.plan.optimizer.learning_rate,
                                         objective.step, parts.plan.length.total_steps) *
                           objective.plateau.scale();
  return {.name = objective.spec.name,
          .step = objective.step,
          .loss = status.loss,
          .terms = status.terms,
          .grad_norm = norm,
          .learning_rate = averaging_rate(parts.plan.average, objective.step, scheduled),
          .loss_scale = objective.scaler.scale(),
          .verdict = verdict,
          .spike = objective.guard.spike(),
          .flush_share = status.flush_share,
          .overflow_share = status.overflow_share};
}

void apply(Objective& objective, double norm, double learning_rate, const Parts& parts) {
  const auto& clip = parts.plan.clip;
  const double factor = clip.norm > 0 ? clip_factor(norm, clip.norm) : 1.0;
  if (factor < 1.0) {
    const at::NoGradGuard no_grad;
    for (at::Tensor flat : objective.gradients.owned()) flat.mul_(factor);
  }
  if (clip.value > 0) clip_value_(objective.gradients.owned(), clip.value);
  std::vector<uint8_t> kept;
  objective.optimizer->step({.learning_rate = learning_rate, .active = objective.active(kept)});
  if (objective.shards) objective.shards->start_gather(parts.parallel->communicator());
  ++objective.step;
}

// Updates the average with the weights and buffers that all ranks have now.
void update_average(Objective& objective) {
  if (!objective.average) return;
  if (objective.shards) objective.shards->wait();
  objective.average->update(objective.step);
}

// Moves the data cursor past the batch.
void advance(RunState& run, const GlobalBatch& batch) {
  ++run.attempt;
  run.epoch = batch.epoch;
  run.consumed = batch.consumed;
}

void fill_in(StepReport& report, const RunState& run, const GlobalBatch& batch,
             const LossMeter& losses) {
  report.attempt = run.attempt;
  report.step = run.step();
  report.epoch = batch.epoch;
  report.samples = static_cast<int64_t>(batch.count("samples"));
  if (const auto tokens = batch.counts.find("tokens"); tokens != batch.counts.end()) {
    report.tokens = static_cast<int64_t>(tokens->second);
  }
  report.microsteps = losses.microsteps();
  report.wait_seconds = batch.wait_seconds;
}

std::optional<StepReport> update_in_memory(Phase& phase, RunState& run, const Parts& parts,
                                           const GlobalBatch& batch) {
  const MustSucceedScope must_succeed;  // only microsteps may run out of memory
  const MemoryScope memory(MemoryKind::temporaries);
  begin(phase, run, parts);
  if (!find_initial_scale(phase, run, parts, batch)) return std::nullopt;
  // One rank may stop within the window, which memory may split; several ranks seed torch's
  // generators again.
  const Undo undo(phase, /*with_generators=*/parts.parallel->alone());
  LossMeter losses;
  const auto window = accumulate_and_measure(phase, run, parts, batch, losses, undo);
  if (!window) return std::nullopt;
  run.applying = true;
  StepReport report;
  report.stop_requested = window->stop_requested;
  for (size_t i = 0; i < phase.objectives.size(); ++i) {
    report.objectives.push_back(judge(phase.objectives[i], window->objectives[i], parts));
  }
  std::vector<Objective*> applied;
  for (size_t i = 0; i < phase.objectives.size(); ++i) {
    Objective& objective = phase.objectives[i];
    ObjectiveReport& judged = report.objectives[i];
    if (judged.verdict.action == Action::apply) {
      apply(objective, judged.grad_norm, judged.learning_rate, parts);
      applied.push_back(&objective);
    } else {
      undo.restore(objective);
      const std::string where = culprit(objective, judged.verdict.cause, window->objectives[i],
                                        batch, losses, *parts.parallel);
      if (!where.empty()) report.culprit = where;
    }
    objective.scaler.update(judged.verdict.cause);
    judged.step = objective.step;
  }
  share_buffers(phase, applied, window->samples, *parts.parallel);
  for (Objective* objective : applied) update_average(*objective);
  advance(run, batch);
  fill_in(report, run, batch, losses);
  run.applying = false;
  return report;
}

}  // namespace

std::optional<StepReport> update(Phase& phase, RunState& run, const Parts& parts,
                                 const GlobalBatch& batch) {
  for (bool is_repeated = false;; is_repeated = true) {
    try {
      return update_in_memory(phase, run, parts, batch);
    } catch (const c10::OutOfMemoryError& error) {
      // Before it is applied, one rank's update can begin again with the state that it found.
      if (is_repeated || run.applying || !parts.parallel->alone()) {
        throw_memory_error(
            error, "an update needs it outside of forward and backward: raise memory.limit");
      }
      parts.recovery->release_cache();
    }
  }
}

}  // namespace tanren
