#include "tanren/train/train_step.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/comm/exchange.h"
#include "tanren/memory/attempt.h"
#include "tanren/optimizer/average.h"
#include "tanren/optimizer/clip.h"
#include "tanren/optimizer/schedule.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/check_terms.h"
#include "tanren/train/freezing.h"
#include "tanren/train/loss_meter.h"
#include "tanren/train/microstep.h"
#include "tanren/train/on_ranks.h"
#include "tanren/train/undo.h"
#include "tanren/train/window.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tanren {

namespace {

// Forward and backward over the window; the gradients are then the sum over ranks. False if a stop was
// requested in between.
bool accumulate(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch,
                LossMeter& losses) {
  for (auto& objective : phase.objectives) objective.gradients.zero();
  if (phase.reducer) phase.reducer->begin();
  {
    const WindowScope window(parts.plan.precision.mode,  // each weight is cast once per window
                             parts.parallel->open_windows());
    const bool done = accumulate_piece(phase, prepared(batch.local, parts),
                                       {run, parts, batch, losses, parts.incident});
    if (!done) return false;
  }
  if (phase.reducer) phase.reducer->finish();
  return true;
}

// Each rank's forward saw its own samples alone, and one without samples none. Running statistics become
// the mean over samples, unless the plan says otherwise; all else is what the first rank with samples has.
// (Synchronised batch norm keeps the same on every rank: that changes none of it.) An objective that was
// not applied may have what another phase's forward left, which differs: it takes that rank's too.
void share_buffers(const Phase& phase, const std::vector<Objective*>& applied,
                   const std::vector<double>& samples, const DataParallel& parallel) {
  const auto source = std::find_if(samples.begin(), samples.end(), [](double n) { return n > 0; });
  if (parallel.alone() || source == samples.end()) return;
  const bool averages = parallel.plan().buffers == "mean";
  std::set<const void*> seen;  // one may belong to two objectives
  std::vector<at::Tensor> statistics, others;
  for (const auto* objective : applied) {
    for (const auto& buffer : objective->buffers) {
      if (!seen.insert(buffer.tensor.unsafeGetTensorImpl()).second) continue;
      (averages && buffer.is_measured() ? statistics : others).push_back(buffer.tensor);
    }
  }
  for (const auto& objective : phase.objectives) {
    for (const auto& buffer : objective.buffers) {
      const bool is_new = seen.insert(buffer.tensor.unsafeGetTensorImpl()).second;
      if (is_new) others.push_back(buffer.tensor);
    }
  }
  parallel.take_mean(statistics, samples);
  parallel.take_from(others, source - samples.begin());
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
  if (objective.shards && !parts.parallel->alone()) {
    objective.shards->start_gather(parts.parallel->communicator());
  }
  ++objective.step;
}

// Takes the weights and buffers in that all ranks have now.
void update_average(Objective& objective) {
  if (!objective.average) return;
  if (objective.shards) objective.shards->wait();
  objective.average->update(objective.step);
}

// A device that failed may refuse it; the error is the news.
void undo_after_error(const Undo& undo, const Phase& phase) {
  try {
    undo.restore_all(phase);
  } catch (const std::exception&) {
    return;
  }
}

// precision.initial_scale = "auto": the largest power of two whose window stays finite, halved once
// for headroom, by bisection over a window. Leaves no trace but the scale; and not even that where the
// window's loss is not finite, or of nothing: then the next one is searched. False if a stop was
// requested in between.
bool find_initial_scale(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch) {
  bool wanted = false;
  for (const auto& objective : phase.objectives) wanted |= objective.scaler.wants_search();
  if (!wanted) return true;
  const Undo undo(phase, /*with_generators=*/true);
  std::vector<State> scalers;
  for (const auto& objective : phase.objectives) scalers.push_back(objective.scaler.state());
  const auto give_up = [&] {
    auto before = scalers.begin();
    for (auto& objective : phase.objectives) objective.scaler.load(*before++);
  };
  int low = 0, high = 32;  // 2^low is taken to be fine, 2^high not
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    for (auto& objective : phase.objectives) objective.scaler.set_searched(std::ldexp(1.0, middle));
    LossMeter losses;
    bool done = false;
    WindowStatus window;
    try {
      done = accumulate(phase, run, parts, batch, losses);
      if (done) window = measure_window(phase, *run.task.module, parts, batch, losses);
    } catch (...) {  // as below
      undo_after_error(undo, phase);
      give_up();
      throw;
    }
    undo.restore_all(phase);
    bool finite = true, has_loss = true;
    for (const auto& status : window.objectives) {
      finite = finite && std::isfinite(status.norm);
      has_loss = has_loss && std::isfinite(status.loss);
    }
    if (!done || !has_loss) {
      give_up();
      return done;
    }
    (finite ? low : high) = middle;
  }
  for (auto& objective : phase.objectives) {
    objective.scaler.set_searched(std::ldexp(1.0, std::max(low - 1, 0)));
  }
  return true;
}

std::string culprit(const Objective& objective, const Status& status, const GlobalBatch& batch,
                    const LossMeter& losses) {
  std::string text;
  if (status.bad_microstep >= 0) {
    const auto [first, last] = losses.samples(status.bad_microstep);
    text = "microbatch " + std::to_string(status.bad_microstep);
    text += first == last ? " (no samples: a loss of none must be 0, a sum and no mean)"
                          : " (samples at " + std::to_string(first) + " to " +
                                std::to_string(last - 1) + " of the batch, first sample id " +
                                std::to_string(batch.local.ids[first].item<int64_t>()) + ")";
  }
  const auto index = objective.gradients.first_non_finite();
  if (index >= 0) {
    text += (text.empty() ? "" : ", ") + std::string("first non-finite gradient ") +
            objective.parameters[index].name;
  }
  return text;
}

// What every rank has found of it.
std::string joint_culprit(const std::string& mine, const DataParallel& parallel) {
  if (parallel.alone()) return mine;
  const auto texts = gather_texts(parallel.communicator(), mine);
  std::string all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    all += (all.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + texts[rank];
  }
  return all;
}

}  // namespace

void connect_reducer(Phase& phase, const DataParallel& parallel) {
  if (parallel.alone() || phase.reducer) return;
  std::vector<Gradients*> gradients;
  for (auto& objective : phase.objectives) gradients.push_back(&objective.gradients);
  phase.reducer = std::make_unique<Reducer>(std::move(gradients), parallel.communicator(),
                                            parallel.reducer_options());
}

Batch prepared(const Batch& batch, const Parts& parts) {
  const bool wide = parts.plan.precision.mode == Mode::fp64;
  const bool channels_last = parts.plan.memory.channels_last;
  if (!wide && !channels_last && parts.device.is_cpu()) return batch;
  Batch moved = batch.to(parts.device);
  if (!wide && !channels_last) return moved;
  Batch result;
  result.ids = moved.ids;
  for (const auto& [name, field] : moved.fields) {
    at::Tensor fit = field;
    if (wide && fit.is_floating_point()) fit = fit.to(at::kDouble);
    if (channels_last && fit.is_floating_point() && fit.dim() == 4) {
      fit = fit.contiguous(at::MemoryFormat::ChannelsLast);
    }
    result.fields.set(name, fit);
  }
  return result;
}

namespace {

std::optional<StepReport> must_succeed_update(Phase& phase, RunState& run, const Parts& parts,
                                              const GlobalBatch& batch) {
  const MustSucceedScope must_succeed;  // only microsteps may run out of memory
  const MemoryScope memory(MemoryKind::temporaries);
  unfreeze(run, parts.plan.freeze, /*tells=*/parts.parallel->is_first(),
           parts.parallel->alone() ? nullptr : &parts.parallel->communicator());
  connect_reducer(phase, *parts.parallel);
  reseed(run, *parts.parallel, Draws::update);
  if (!parts.plan.parallel.overlap || !phase.spec.forward_on_one_thread) run.settle();
  if (!find_initial_scale(phase, run, parts, batch)) return std::nullopt;
  // One rank may stop within the window, which memory may split; more of them seed torch's anew.
  const Undo undo(phase, /*with_generators=*/parts.parallel->alone());
  LossMeter losses;
  WindowStatus window;
  try {
    if (!accumulate(phase, run, parts, batch, losses)) {
      undo.restore_all(phase);
      return std::nullopt;
    }
    if (losses.microsteps() > 0) check_grown(phase, *run.task.module);
    run.settle();  // of a rank without samples
    window = measure_window(phase, *run.task.module, parts, batch, losses);
  } catch (...) {  // a checkpoint of the state before the update may follow
    if (parts.parallel->alone()) undo_after_error(undo, phase);
    throw;
  }

  run.applying = true;
  StepReport report;
  report.stop_requested = window.stop_requested;
  std::vector<Objective*> applied;
  auto next_status = window.objectives.begin();
  for (auto& objective : phase.objectives) {
    const auto& status = *next_status++;
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
    ObjectiveReport told{
        .name = objective.spec.name,
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
    if (verdict.action == Action::apply) {
      apply(objective, norm, told.learning_rate, parts);
      applied.push_back(&objective);
    } else {
      undo.restore(objective);
      if (verdict.cause == Cause::nothing_counted) {
        report.culprit =
            "the batch has 0 " + status.uncounted + " to divide " + status.uncounted_term + " by";
      } else if (verdict.cause != Cause::overflow) {
        report.culprit = joint_culprit(culprit(objective, status, batch, losses), *parts.parallel);
      }
    }
    objective.scaler.update(verdict.cause);
    told.step = objective.step;
    report.objectives.push_back(std::move(told));
  }
  share_buffers(phase, applied, window.samples, *parts.parallel);
  for (auto* objective : applied) update_average(*objective);
  ++run.attempt;
  run.epoch = batch.epoch;
  run.consumed = batch.consumed;
  report.attempt = run.attempt;
  report.step = run.step();
  report.epoch = batch.epoch;
  report.samples = static_cast<int64_t>(batch.count("samples"));
  if (const auto tokens = batch.counts.find("tokens"); tokens != batch.counts.end()) {
    report.tokens = static_cast<int64_t>(tokens->second);
  }
  report.microsteps = losses.microsteps();
  report.wait_seconds = batch.wait_seconds;
  run.applying = false;
  return report;
}

}  // namespace

std::optional<StepReport> update(Phase& phase, RunState& run, const Parts& parts,
                                 const GlobalBatch& batch) {
  try {
    return must_succeed_update(phase, run, parts, batch);
  } catch (const c10::OutOfMemoryError& error) {
    throw_memory_error(error,
                       "an update needs it outside of forward and backward: raise memory.limit");
  }
}

}  // namespace tanren
