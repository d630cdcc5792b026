#include "tanren/train/train_step.h"

#include "tanren/accumulation/loss_meter.h"
#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/memory/attempt.h"
#include "tanren/optimizer/average.h"
#include "tanren/optimizer/clip.h"
#include "tanren/optimizer/schedule.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/precision/measure.h"
#include "tanren/train/freezing.h"
#include "tanren/train/microstep.h"
#include "tanren/train/undo.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace tanren {

namespace {

// Forward and backward over the window. False if a stop was requested in between.
bool accumulate(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch,
                LossMeter& losses) {
  const WindowScope window(parts.plan.precision.mode);  // each weight is cast once per window
  for (auto& objective : phase.objectives) objective.gradients.zero();
  return accumulate_piece(phase, prepared(batch.local, parts),
                          {run, parts, batch, losses, parts.incident});
}

// What the host learns of a window, for one objective.
struct Status {
  double loss = 0;
  NamedValues terms;
  double norm = 0;
  int64_t bad_microstep = -1;  // first with a non-finite term
  std::optional<double> flush_share, overflow_share;
};

// Measures every objective on the device, then reads all of it at once.
std::vector<Status> measure_and_read(Phase& phase, const Parts& parts, const GlobalBatch& batch,
                                     const LossMeter& losses) {
  std::vector<at::Tensor> values(losses.sums());
  const bool report_flush = parts.plan.precision.report_flush;
  for (auto& objective : phase.objectives) {
    const auto measured =
        unscale_and_measure(objective.gradients.flat(), objective.scaler.scale(), report_flush);
    values.push_back(measured.norm);
    if (report_flush) {
      values.push_back(measured.flush_share);
      values.push_back(measured.overflow_share);
    }
  }
  for (auto& value : values) {
    if (value.scalar_type() != values[0].scalar_type()) {
      for (auto& other : values) other = other.to(at::kDouble);
      break;
    }
  }
  const auto host = read_to_host(at::stack(values));

  const auto& names = losses.names();
  const size_t num_terms = names.size();
  std::vector<double> means(num_terms, 0.0);
  int64_t bad_microstep = -1;
  for (int64_t microstep = 0; microstep < losses.microsteps(); ++microstep) {
    for (size_t i = 0; i < num_terms; ++i) {
      const double sum = host[microstep * num_terms + i];
      if (!std::isfinite(sum) && bad_microstep < 0) bad_microstep = microstep;
      means[i] += sum;
    }
  }
  for (size_t i = 0; i < num_terms; ++i) means[i] /= batch.count(losses.count_names()[i]);

  std::vector<Status> all;
  size_t next = losses.sums().size();
  for (const auto& objective : phase.objectives) {
    Status status;
    for (size_t i = 0; i < num_terms; ++i) {
      double weight = objective.spec.terms.empty() ? 1.0 : 0.0;
      for (const auto& term : objective.spec.terms)
        weight += term.name == names[i] ? term.weight : 0;
      if (weight == 0.0) continue;
      status.loss += weight * means[i];
      status.terms.emplace_back(names[i], means[i]);
    }
    status.bad_microstep = bad_microstep;
    status.norm = host[next++];
    if (report_flush) {
      status.flush_share = host[next++];
      status.overflow_share = host[next++];
    }
    all.push_back(std::move(status));
  }
  return all;
}

void apply(Objective& objective, double norm, double learning_rate, const Parts& parts) {
  const auto& clip = parts.plan.clip;
  const double factor = clip.norm > 0 ? clip_factor(norm, clip.norm) : 1.0;
  if (factor < 1.0) {
    const at::NoGradGuard no_grad;
    for (at::Tensor flat : objective.gradients.flat()) flat.mul_(factor);
  }
  if (clip.value > 0) clip_value_(objective.gradients.flat(), clip.value);
  objective.optimizer->step(
      {.learning_rate = learning_rate, .active = objective.gradients.active()});
  ++objective.step;
  if (objective.average) objective.average->update(objective.step);
}

// precision.initial_scale = "auto": the largest power of two whose window stays finite, halved once
// for headroom, by bisection over the first window. Leaves no trace but the scale.
void find_initial_scale(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch) {
  bool wanted = false;
  for (const auto& objective : phase.objectives) wanted |= objective.scaler.wants_search();
  if (!wanted) return;
  const Undo undo(phase, /*with_generators=*/true);
  int low = 0, high = 32;  // 2^low is taken to be fine, 2^high not
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    for (auto& objective : phase.objectives) objective.scaler.set_searched(std::ldexp(1.0, middle));
    LossMeter losses;
    accumulate(phase, run, parts, batch, losses);
    bool finite = true;
    for (const auto& status : measure_and_read(phase, parts, batch, losses)) {
      finite = finite && std::isfinite(status.norm);
    }
    (finite ? low : high) = middle;
    undo.restore_all(phase);
  }
  for (auto& objective : phase.objectives) {
    objective.scaler.set_searched(std::ldexp(1.0, std::max(low - 1, 0)));
  }
}

std::string culprit(const Objective& objective, const Status& status, const GlobalBatch& batch,
                    const LossMeter& losses) {
  std::string text;
  if (status.bad_microstep >= 0) {
    const auto [first, last] = losses.samples(status.bad_microstep);
    text = "microbatch " + std::to_string(status.bad_microstep) + " (samples at " +
           std::to_string(first) + " to " + std::to_string(last - 1) +
           " of the batch, first sample id " +
           std::to_string(batch.local.ids[first].item<int64_t>()) + ")";
  }
  const auto index = objective.gradients.first_non_finite();
  if (index >= 0) {
    text += (text.empty() ? "" : ", ") + std::string("first non-finite gradient ") +
            objective.parameters[index].name;
  }
  return text;
}

}  // namespace

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

std::optional<StepReport> essential_update(Phase& phase, RunState& run, const Parts& parts,
                                           const GlobalBatch& batch) {
  const EssentialScope essential;  // only microsteps may run out of memory
  const MemoryScope memory(MemoryKind::temporaries);
  thaw(run, parts.plan.freeze);
  find_initial_scale(phase, run, parts, batch);
  const bool many = run.microbatch > 0 && run.microbatch < batch.local.size();
  const Undo undo(phase, /*with_generators=*/many);
  LossMeter losses;
  if (!accumulate(phase, run, parts, batch, losses)) {
    undo.restore_all(phase);
    return std::nullopt;
  }
  const auto statuses = measure_and_read(phase, parts, batch, losses);

  StepReport report;
  auto next_status = statuses.begin();
  for (auto& objective : phase.objectives) {
    const auto& status = *next_status++;
    double norm = status.norm;
    if (!std::isfinite(norm) && std::isfinite(status.loss)) {
      norm = exact_norm(objective.gradients.flat());  // the sum of squares may just not fit fp32
    }
    const Verdict verdict = objective.guard.judge({.loss_finite = std::isfinite(status.loss),
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
    } else {
      undo.restore(objective);
      if (verdict.cause != Cause::overflow) {
        report.culprit = culprit(objective, status, batch, losses);
      }
    }
    objective.scaler.update(verdict.cause);
    told.step = objective.step;
    report.objectives.push_back(std::move(told));
  }
  ++run.attempt;
  run.epoch = batch.epoch;
  run.consumed = batch.consumed;
  report.attempt = run.attempt;
  report.step = run.step();
  report.epoch = batch.epoch;
  report.samples = batch.local.size();
  if (const auto tokens = batch.counts.find("tokens"); tokens != batch.counts.end()) {
    report.tokens = static_cast<int64_t>(tokens->second);
  }
  report.microsteps = losses.microsteps();
  report.wait_seconds = batch.wait_seconds;
  return report;
}

}  // namespace

std::optional<StepReport> update(Phase& phase, RunState& run, const Parts& parts,
                                 const GlobalBatch& batch) {
  try {
    return essential_update(phase, run, parts, batch);
  } catch (const c10::OutOfMemoryError& error) {
    throw_memory_error(error,
                       "an update needs it outside of forward and backward: raise memory.limit");
  }
}

}  // namespace tanren
