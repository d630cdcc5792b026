#include "tanren/train/loop_state.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/metrics/incident_file.h"
#include "tanren/train/estimate_statistics.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/evaluation_sums.h"
#include "tanren/train/explained.h"
#include "tanren/train/judgement.h"
#include "tanren/train/memory_now.h"
#include "tanren/train/on_ranks.h"
#include "tanren/train/pictures.h"
#include "tanren/train/undo.h"

#include <algorithm>

namespace tanren {

namespace {

constexpr size_t kIncidentPeaks = 20;  // of steps before it, shown with an incident

bool counted_nothing(const StepReport& report) {
  return std::all_of(report.objectives.begin(), report.objectives.end(), [](const auto& objective) {
    return objective.verdict.cause == Cause::nothing_counted;
  });
}

std::string rank_text(const Parts& parts) {
  const RankAxis& world = parts.ranks->world();
  return world.alone() ? "" : fmt::format(", rank {}", world.rank());
}

// Several ranks make their batches ahead, so the batch is not always for the next step.
std::string where_of_batch(const RunState& run, const Parts& parts) {
  if (parts.ranks->world().alone()) return fmt::format(" (for step {})", to_text(run.step() + 1));
  return fmt::format(" (after step {}{})", to_text(run.step()), rank_text(parts));
}

}  // namespace

bool decides(const RunState& run, const Plan& plan) {
  return is_due(plan.evaluate.every, run.step()) || plan.checkpoint.best > 0 ||
         plan.early_stop.patience > 0;
}

LoopState::LoopState(RunState& run, const Parts& given, const LoopInputs& inputs)
    : run_(run),
      parts_(given),
      inputs_(inputs),
      plan_(parts_.plan),
      is_first_(parts_.ranks->world().is_first()),
      estimates_(plan_.average.buffers == AverageBuffers::estimate && plan_.average.evaluate),
      gauge_(given.recovery->gauge()),
      leaks_(plan_.guard.growth_steps),
      cache_(plan_.memory.release_cache, parts_.device) {
  memory_.update(gauge_);
  parts_.incident = [this, &given](const Incident& incident) {
    tell_incident(incident);
    if (given.incident) given.incident(incident);
  };
  if (const auto latest =
          inputs.checkpoints.empty() ? std::nullopt : latest_checkpoint(inputs.checkpoints)) {
    result_.checkpoint = *latest;
  }
  run_.selection.adopt(plan_);
}

void LoopState::begin() {
  begin_alike(run_, parts_);
  values_at_start_ = worst_values(run_);
  if (finished(run_, plan_)) return;
  const bool shows = is_first_ && plan_.metrics.images_every > 0 && !inputs_.sinks.empty();
  if (shows) saved_before_error("", [&] { rehearse_pictures(); });
  if (inputs_.eval == nullptr && !shows) return;
  if (inputs_.eval != nullptr) {
    saved_before_error("", [&] { rehearse_evaluation(run_, parts_, *inputs_.eval); });
  }
  trim_cpu_memory();
  if (gauge_.counts()) gauge_.restart();  // the rehearsal is not part of the first step's peak
}

std::optional<Ending> LoopState::before_update() {
  const bool saves = is_due(plan_.checkpoint.every, run_.step());
  if (is_applied_ && saves) checkpoint();  // first, in case the evaluation fails
  is_applied_ = is_among_best_ = false;
  if (inputs_.eval != nullptr && owes_evaluation(run_, plan_)) {
    // An evaluation may fail on one rank. No checkpoint could then be written, because all stages
    // write it together, so it is written before.
    if (parts_.stage != nullptr && result_.session_attempts > 0 && !is_saved()) checkpoint();
    if (!evaluate()) return Ending::interrupted;
    const bool decides = estimates_ || evaluations_decide(plan_);
    if (is_among_best_ || (decides && saves)) checkpoint();
  }
  if (finished(run_, plan_)) return Ending::finished;  // the evaluation may have ended the run
  const bool stops = parts_.stop_requested() || is_out_of_time();
  if (parts_.ranks->world().alone() ? stops : stop_agreed_) return Ending::interrupted;
  const auto& stop_after = plan_.run.stop_after;
  if (stop_after && result_.session_steps >= *stop_after) return Ending::stopped;
  return std::nullopt;
}

GlobalBatch LoopState::next_batch(BatchStream& batches) {
  step_start_ = Clock::now();
  reads_before_ = num_device_reads();
  GlobalBatch batch =
      saved_before_error(where_of_batch(run_, parts_), [&] { return batches.next(); });
  if (batch.epoch > seen_epoch_ && seen_epoch_ >= 0) {
    saved_before_error("", [&] { tell_remarks(); });
  }
  if (batch.epoch != seen_epoch_) uncounted_ = 0;
  seen_epoch_ = batch.epoch;
  return batch;
}

void LoopState::update(const GlobalBatch& batch) {
  const int64_t step_before = run_.step();
  if (!parts_.ranks->world().alone()) {  // reported by the others if this rank is lost
    parts_.ranks->world().communicator().set_state(fmt::format("step {}", step_before + 1));
  }
  auto report = saved_before_error(
      "", [&] { return explained_update(run_, parts_, batch, inputs_.train, memory_); });
  if (!report) return;  // a stop was requested, and nothing has changed
  stop_agreed_ = report->stop_requested;
  count(*report);
  set_stop_time(report->seconds);
  saved_before_error("", [&] { tell(*report, &Sink::step); });
  check_verdicts(*report);
  is_applied_ = run_.step() > step_before;
  leaks_.step([&] { return live_bytes(parts_.device); });
  cache_.after_step();
  result_.skipped_steps += is_applied_ ? 0 : 1;
  result_.session_steps += is_applied_ ? 1 : 0;
  if (report->several) {
    for (const auto& objective : report->objectives)
      result_.losses[objective.name] = objective.loss;
  }
  result_.last = std::move(report);
  if (is_applied_) check_weights(run_, parts_);
  if (is_applied_ && is_first_ && is_due(plan_.metrics.images_every, run_.step())) {
    saved_before_error("", [&] { tell_pictures(batch.local); });
  }
}

LoopResult LoopState::end(Ending ending) {
  result_.ending = ending;
  if (on_any_rank(has_ruined_weights(), *parts_.ranks)) {
    end_with_ruined_weights(run_, plan_, inputs_.checkpoints);
  }
  if (!is_saved()) checkpoint();
  if (seen_epoch_ >= 0) {
    saved_before_error("", [&] { tell_remarks(); });
  }
  if (ending == Ending::finished) {
    const int64_t judged = run_.selection.judged_step;
    const bool evaluates = inputs_.eval != nullptr && evaluated_at_ != run_.step();
    const bool is_done = evaluates ? evaluate() : inputs_.eval != nullptr || estimate();
    if (!is_done) result_.ending = Ending::interrupted;
    const bool is_decided = judged != run_.selection.judged_step && decides(run_, plan_);
    if (is_done && (estimates_ || is_decided)) checkpoint();
    result_.reason = run_.selection.end_reason(plan_);
  }
  if (result_.ending == Ending::interrupted && result_.reason.empty()) {
    result_.reason = reason_of_stop();
  }
  for (Sink* sink : inputs_.sinks) report_to_sink([&] { sink->flush(); });
  trim_cpu_memory();
  result_.growth = leaks_.warning();
  result_.recoveries = parts_.recovery->num_failures();
  return std::move(result_);
}

bool LoopState::estimate() {
  share_stop_time();  // every evaluation begins here
  if (!estimates_) return true;
  reseed(run_, *parts_.ranks, Draws::evaluation);
  return estimate_statistics(run_, parts_, inputs_.train);
}

bool LoopState::evaluate() {
  const Undo before(run_, parts_.device, /*with_generators=*/parts_.ranks->world().alone());
  const bool is_news = run_.selection.judged_step != run_.step();  // else it was logged already
  std::optional<EvaluationReport> report;
  try {
    if (estimate()) {
      reseed(run_, *parts_.ranks, Draws::evaluation);
      report = evaluate_unless_stopped(run_, parts_, *inputs_.eval, &left_out_);
    }
    if (report) is_among_best_ = judge(run_, plan_, *report, is_first_);
  } catch (const NothingToEvaluate&) {  // thrown on every rank
    before.restore_after_error();
    const std::string unsaved = is_saved() ? "" : save_last();
    rethrow_with(unsaved_text(unsaved) + last_saved());
  } catch (...) {
    before.restore_after_error();
    const auto last = result_.checkpoint;
    const std::string unsaved = keep_state();
    if (result_.checkpoint != last) {
      log(fmt::format("[train] step {} is saved; its evaluation failed and is owed",
                      to_text(run_.step())));
    }
    rethrow_with(unsaved_text(unsaved) + last_saved());
  }
  trim_cpu_memory();  // its batches differ in size from the steps'
  if (!report) {
    before.restore_all();
    return false;
  }
  evaluated_at_ = run_.step();
  if (is_news) saved_before_error("", [&] { tell(*report, &Sink::evaluation); });
  result_.evaluation = std::move(*report);
  return true;
}

void LoopState::tell_incident(const Incident& incident) {
  Incident told = incident;
  told.recent_peaks.assign(peaks_.begin(), peaks_.end());
  log(fmt::format("[memory] step {}{}: {}", told.step, rank_text(parts_), incident_text(told)));
  tell(told, &Sink::incident);
}

// Makes pictures once, so that errors in them show before the first step.
void LoopState::rehearse_pictures() {
  check_predicts(run_.task);
  if (inputs_.eval == nullptr) return;
  shown_ = shown_samples(*inputs_.eval);
  make_pictures(run_, parts_, *shown_, "eval");
}

void LoopState::tell_pictures(const Batch& batch) {
  if (inputs_.sinks.empty()) return;
  const auto report = shown_ ? make_pictures(run_, parts_, *shown_, "eval")
                             : make_pictures(run_, parts_, batch, "train");
  if (!report.pictures.empty()) tell(report, &Sink::images);
  trim_cpu_memory();                      // its batch differs in size from the steps'
  if (gauge_.counts()) gauge_.restart();  // the pictures are not part of the next step's peak
}

void LoopState::tell_remarks() {
  const std::string remarks = inputs_.train.remarks();
  if (remarks.empty()) return;
  log(fmt::format("{} (until epoch {})", remarks, seen_epoch_ + 1));
}

void LoopState::count(StepReport& report) {
  report.seconds = seconds_since(step_start_);
  report.memory_bytes = memory_now(parts_.device);
  if (gauge_.counts()) {
    peaks_.push_back(gauge_.peak());
    if (peaks_.size() > kIncidentPeaks) peaks_.pop_front();
    gauge_.restart();
  }
  result_.train_seconds += report.seconds;
  result_.device_reads += num_device_reads() - reads_before_;
  ++result_.session_attempts;
  result_.session_samples += report.samples;
  result_.session_tokens += report.tokens;
  if (result_.session_attempts == 1) result_.first_step_seconds = seconds_since(start_);
}

void LoopState::check_verdicts(const StepReport& report) {
  for (const auto& objective : report.objectives) {
    if (objective.verdict.action == Action::halt) {
      // The state has nothing of the refused update, and the data cursor is past its batch.
      const std::string unsaved = save_last();
      halt(report, objective, plan_, inputs_.checkpoints, unsaved);
    }
  }
  uncounted_ = counted_nothing(report) ? uncounted_ + 1 : 0;
  if (uncounted_ == 0 || uncounted_ < plan_.batch.steps_per_epoch) return;
  const std::string unsaved = save_last();  // otherwise the run would never end
  throw DataError(
      fmt::format("[train] no batch of a whole epoch can be trained on (attempt {}: {}); fix the "
                  "labels and begin another run{}",
                  to_text(report.attempt), report.culprit, unsaved_text(unsaved)));
}

}  // namespace tanren
