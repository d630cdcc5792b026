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

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

namespace tanren {

namespace {

void begin(RunState& run, const Parts& parts) {
  const Ranks& ranks = *parts.ranks;
  unfreeze(run, parts.plan.freeze, /*tells=*/ranks.world().is_first(),
           &ranks.data().communicator());
  reseed(run, ranks, Draws::update);
  run.phases_done = 0;
  run.updated_step = run.step() + 1;
}

void begin(Phase& phase, const RunState& run, const Parts& parts) {
  connect_reducer(phase, *parts.ranks);
  if (!parts.plan.parallel.overlap || !phase.spec.forward_on_one_thread) run.settle();
}

// Accumulates and measures the window. Empty if a stop was requested; then nothing has changed.
std::optional<WindowStatus> accumulate_and_measure(Phase& phase, RunState& run, const Parts& parts,
                                                   const GlobalBatch& batch, LossMeter& losses,
                                                   const Undo& undo) {
  try {
    if (!accumulate(phase, run, parts, batch, losses)) {
      undo.restore_all();
      return std::nullopt;
    }
    if (losses.microsteps() > 0) check_grown(phase, *run.task.module);
    run.settle();  // a rank without samples has not waited yet
    return measure_window(phase, *run.task.module, parts, batch, losses);
  } catch (...) {  // a checkpoint of the state before the update may follow
    if (parts.ranks->world().alone()) undo.restore_after_error();
    throw;
  }
}

ObjectiveReport judge(Objective& objective, const Status& status, const Parts& parts) {
  const Verdict verdict = objective.guard.judge({.counted = status.uncounted.empty(),
                                                 .loss_finite = std::isfinite(status.loss),
                                                 .gradients_finite = std::isfinite(status.norm),
                                                 .can_back_off = objective.scaler.can_back_off(),
                                                 .loss = status.loss,
                                                 .grad_norm = status.norm});
  const ObjectivePlan& plan = objective.plan;
  const double peak = plan.optimizer.learning_rate;
  const double scheduled = learning_rate(plan.schedule, peak, objective.step, plan.total_steps) *
                           objective.plateau.scale();
  // average.learning_rate is the first objective's; the others keep their proportion to it.
  AveragePlan average = parts.plan.average;
  average.learning_rate *= peak / parts.plan.objectives.front().optimizer.learning_rate;
  return {
      .name = objective.spec.name,
      .step = objective.step,
      .loss = status.loss,
      .terms = status.terms,
      .grad_norm = status.norm,
      .learning_rate = averaging_rate(average, objective.step * objective.spec.every, scheduled),
      .loss_scale = objective.scaler.scale(),
      .verdict = verdict,
      .spike = objective.guard.spike(),
      .flush_share = status.flush_share,
      .overflow_share = status.overflow_share};
}

void apply(Objective& objective, double norm, double learning_rate, const Parts& parts) {
  const ClipOptions& clip = objective.plan.clip;
  const double factor = clip.norm > 0 ? clip_factor(norm, clip.norm) : 1.0;
  if (factor < 1.0) {
    const at::NoGradGuard no_grad;
    for (at::Tensor flat : objective.gradients.owned()) flat.mul_(factor);
  }
  if (clip.value > 0) clip_value_(objective.gradients.owned(), clip.value);
  std::vector<uint8_t> kept;
  objective.optimizer->step({.learning_rate = learning_rate, .active = objective.active(kept)});
  if (objective.shards) objective.shards->start_gather(parts.ranks->data().communicator());
  ++objective.step;
}

// Adds `where`, the place at which an objective's numbers went wrong, to the report; nothing if
// empty.
void add_culprit(StepReport& report, const RunState& run, const Objective& objective,
                 const std::string& where) {
  if (where.empty()) return;
  if (!report.culprit.empty()) report.culprit += "; ";
  if (run.has_several_objectives()) report.culprit += objective.spec.name + ": ";
  report.culprit += where;
}

// Updates the average with the weights and buffers that all ranks have now.
void update_average(Objective& objective) {
  if (!objective.average) return;
  if (objective.shards) objective.shards->wait();
  objective.average->update(objective.step, objective.spec.every);
}

bool halts(const std::vector<ObjectiveReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const ObjectiveReport& report) {
    return report.verdict.action == Action::halt;
  });
}

// Judges the objectives in turn. If one of them halts the run, none is applied.
std::vector<ObjectiveReport> judge_all(const std::vector<Objective*>& objectives,
                                       const WindowStatus& window, const Parts& parts) {
  std::vector<Guard> before;
  std::vector<ObjectiveReport> reports;
  for (size_t i = 0; i < objectives.size(); ++i) {
    before.push_back(objectives[i]->guard);
    reports.push_back(judge(*objectives[i], window.objectives[i], parts));
  }
  if (!halts(reports)) return reports;
  for (size_t i = 0; i < objectives.size(); ++i) {
    if (reports[i].verdict.action == Action::halt) continue;
    objectives[i]->guard = before[i];
    reports[i].verdict = {Action::skip, Cause::halt_beside};
    reports[i].spike.reset();
  }
  return reports;
}

// One phase of an update, added to the report. False if a stop was requested; then nothing has
// changed.
bool update_phase(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch,
                  StepReport& report) {
  begin(phase, run, parts);
  if (!find_initial_scale(phase, run, parts, batch)) return false;
  // A single rank needs the generators, because it may stop within the window. Several ranks seed
  // torch's generators again.
  const Undo undo(run, parts.device, /*with_generators=*/parts.ranks->world().alone());
  LossMeter losses;
  const auto window = accumulate_and_measure(phase, run, parts, batch, losses, undo);
  if (!window) return false;
  run.applying = true;
  const auto objectives = phase.in_turn();
  auto reports = judge_all(objectives, *window, parts);
  std::vector<Objective*> applied, undone;
  for (size_t i = 0; i < objectives.size(); ++i) {
    Objective& objective = *objectives[i];
    const Cause cause = reports[i].verdict.cause;
    if (reports[i].verdict.action == Action::apply) {
      apply(objective, reports[i].grad_norm, reports[i].learning_rate, parts);
      applied.push_back(&objective);
    } else {
      undone.push_back(&objective);
      const std::string where =
          culprit(objective, cause, window->objectives[i], batch, losses, *parts.ranks);
      add_culprit(report, run, objective, where);
    }
    if (cause != Cause::halt_beside) objective.scaler.update(cause);
    reports[i].step = objective.step;
  }
  undo.restore(undone, applied);
  share_buffers(run, undone, window->samples, *parts.ranks);
  for (Objective* objective : applied) update_average(*objective);
  report.stop_requested = report.stop_requested || window->stop_requested;
  if (window->bubble) report.bubble = window->bubble;
  report.microsteps = std::max(report.microsteps, losses.microsteps());
  std::move(reports.begin(), reports.end(), std::back_inserter(report.objectives));
  run.applying = false;
  ++run.phases_done;
  return true;
}

// Moves the data cursor past the batch.
void advance(RunState& run, const GlobalBatch& batch) {
  ++run.attempt;
  run.epoch = batch.epoch;
  run.consumed = batch.consumed;
}

void fill_in(StepReport& report, const RunState& run, const GlobalBatch& batch) {
  report.attempt = run.attempt;
  report.step = run.step();
  report.epoch = batch.epoch;
  report.several = run.has_several_objectives();
  report.samples = static_cast<int64_t>(batch.count("samples"));
  if (const auto tokens = batch.counts.find("tokens"); tokens != batch.counts.end()) {
    report.tokens = static_cast<int64_t>(tokens->second);
  }
  report.wait_seconds = batch.wait_seconds;
}

std::optional<StepReport> update_in_memory(RunState& run, const Parts& parts,
                                           const GlobalBatch& batch) {
  const MustSucceedScope must_succeed;  // only microsteps may run out of memory
  const DeviceRetryScope retries(parts.recovery->reserve());
  const MemoryScope memory(MemoryKind::temporaries);
  begin(run, parts);
  StepReport report;
  try {
    for (Phase& phase : run.phases) {
      if (!phase.begin_turn(run.attempt)) continue;
      if (!update_phase(phase, run, parts, batch, report)) return std::nullopt;
      if (halts(report.objectives)) break;
    }
  } catch (...) {  // what earlier phases applied stays, and a resumed run must not apply it again
    if (run.phases_done > 0) advance(run, batch);
    throw;
  }
  advance(run, batch);
  fill_in(report, run, batch);
  run.phases_done = 0;
  return report;
}

}  // namespace

std::optional<StepReport> update(RunState& run, const Parts& parts, const GlobalBatch& batch) {
  try {
    return update_in_memory(run, parts, batch);
  } catch (const c10::OutOfMemoryError& error) {
    throw_memory_error(error,
                       "an update needs it outside of forward and backward: raise memory.limit");
  }
}

}  // namespace tanren
