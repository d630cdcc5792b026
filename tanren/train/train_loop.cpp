#include "tanren/train/train_loop.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/log.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/comm/exchange.h"
#include "tanren/guard/leak_detector.h"
#include "tanren/memory/cache_release.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/memory/gauge.h"
#include "tanren/metrics/incident_file.h"
#include "tanren/train/batch_stream.h"
#include "tanren/train/endings.h"
#include "tanren/train/estimate_statistics.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/evaluation_sums.h"
#include "tanren/train/explained.h"
#include "tanren/train/finite_weights.h"
#include "tanren/train/judgement.h"
#include "tanren/train/memory_now.h"
#include "tanren/train/on_ranks.h"
#include "tanren/train/train_step.h"
#include "tanren/train/undo.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kIncidentPeaks = 20;  // of steps before it that an incident shows

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// True once the plan's steps are applied, its epochs consumed, or it no longer improves.
bool finished(const RunState& run, const Plan& plan) {
  if (!run.selection.end_reason(plan).empty()) return true;
  if (plan.length.steps && run.step() >= *plan.length.steps) return true;
  if (!plan.length.epochs) return false;
  const auto& batch = plan.batch;
  const int64_t usable = batch.steps_per_epoch;  // batches per epoch, the short one if kept
  const int64_t used = (run.consumed + batch.global_batch - 1) / batch.global_batch;
  return run.epoch + (used >= usable ? 1 : 0) >= *plan.length.epochs;
}

double sum_over_ranks(const Parts& parts, double number) {
  if (parts.parallel->alone()) return number;
  return sum_numbers(parts.parallel->communicator(), {number})[0];
}

bool counted_nothing(const StepReport& report) {
  return std::all_of(report.objectives.begin(), report.objectives.end(), [](const auto& objective) {
    return objective.verdict.cause == Cause::nothing_counted;
  });
}

std::string rank_text(const Parts& parts) {
  return parts.parallel->alone() ? "" : ", rank " + std::to_string(parts.parallel->rank());
}

// Of several ranks each makes its batches ahead.
std::string where_of_batch(const RunState& run, const Parts& parts) {
  if (parts.parallel->alone()) return " (for step " + to_text(run.step() + 1) + ")";
  return " (after step " + to_text(run.step()) + rank_text(parts) + ")";
}

// What went wrong with the data without ending the run, at the end of an epoch and of the run.
void tell_remarks(const Dataset& train, int64_t epoch) {
  const std::string remarks = train.remarks();
  if (!remarks.empty()) log(remarks + " (until epoch " + std::to_string(epoch + 1) + ")");
}

bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// Whether the state that goes on from here depends on this step's evaluation.
bool decides(const RunState& run, const Plan& plan) {
  return due(plan.evaluate.every, run.step()) || plan.checkpoint.best > 0 ||
         plan.early_stop.patience > 0;
}

// Whether every rank has a part of a checkpoint to write.
bool writes_together(const Parts& parts) {
  return !parts.parallel->alone() && parts.plan.parallel.zero > 0;
}

}  // namespace

std::filesystem::path save_checkpoint(const RunState& run, const Parts& parts,
                                      const LoopInputs& inputs, int64_t spared) {
  // Before the state, so that a log is whole where it can be; a state costs no log that cannot.
  std::exception_ptr unwritten;
  for (Sink* sink : inputs.sinks) {
    if (const auto failure = flush_for_checkpoint(*sink)) unwritten = failure;
  }
  Snapshot snapshot;
  snapshot.model.tensors = run.model_tensors();
  snapshot.optimizer = run.optimizer_state();
  snapshot.average = run.average_state();
  snapshot.run = run.run_state();
  snapshot.config_toml = inputs.config_toml;
  snapshot.plan_text = inputs.plan_text;
  snapshot.origin = inputs.origin;
  std::vector<int64_t> best;
  for (const auto& ranked : run.selection.best) best.push_back(ranked.step);
  const auto& checkpoints = inputs.checkpoints;
  const int64_t keep = parts.plan.checkpoint.keep + spared;
  std::filesystem::path written;
  if (writes_together(parts)) {
    snapshot.slices = run.optimizer_slices();
    written = write_shared_checkpoint(checkpoints, run.step(), snapshot, keep, best,
                                      parts.parallel->communicator());
  } else {
    written = write_checkpoint(checkpoints, run.step(), snapshot, keep, best);
  }
  if (spared == 0) end_with_unwritten(unwritten, written);  // else another error is on its way
  return written;
}

bool owes_evaluation(const RunState& run, const Plan& plan) {
  return run.step() > 0 && run.selection.judged_step != run.step() &&
         (due(plan.evaluate.every, run.step()) || finished(run, plan));
}

Loader make_loader(const RunState& run, const Parts& parts, const Dataset& dataset) {
  const auto& plan = parts.plan;
  LoaderOptions options;
  options.global_batch = plan.batch.global_batch;
  options.keep_last = plan.batch.keep_last;
  options.shuffle = plan.data.shuffle;
  options.seed = run.seed;
  options.workers = plan.data.workers;
  options.prefetch = plan.data.prefetch;
  options.device = parts.device;
  options.rank = parts.parallel->rank();
  options.world_size = parts.parallel->world_size();
  return Loader(dataset, options, Cursor{run.epoch, run.consumed});
}

LoopResult train_loop(RunState& run, const Parts& given, const LoopInputs& inputs) {
  const MustSucceedScope must_succeed;  // only microsteps and evaluations may run out of memory
  MemoryGauge gauge = given.recovery->gauge();
  std::deque<int64_t> peaks;  // bytes, of the last steps
  MemoryState memory;         // what a failure is explained with
  memory.update(gauge);
  Parts parts = given;
  parts.incident = [&](const Incident& told) {
    Incident incident = told;
    incident.recent_peaks.assign(peaks.begin(), peaks.end());
    log("[memory] step " + std::to_string(incident.step) + rank_text(parts) + ": " +
        incident_text(incident));
    for (Sink* sink : inputs.sinks) report_to_sink([&] { sink->incident(incident); });
    if (given.incident) given.incident(incident);
  };
  const auto& plan = parts.plan;
  const auto start = Clock::now();
  LoopResult result;
  if (const auto latest =
          inputs.checkpoints.empty() ? std::nullopt : latest_checkpoint(inputs.checkpoints)) {
    result.checkpoint = *latest;
  }
  const auto tell = [&](const auto& report, auto method) {
    for (Sink* sink : inputs.sinks) report_to_sink([&] { (sink->*method)(report); });
  };
  const bool estimates = plan.average.buffers == AverageBuffers::estimate && plan.average.evaluate;
  // False where a stop was requested.
  const auto estimate = [&] {
    if (!estimates) return true;
    reseed(run, *parts.parallel, Draws::evaluation);
    return estimate_statistics(run, parts, inputs.train);
  };
  const bool is_first = parts.parallel->is_first();
  // Attempt and judged step of the state that the last checkpoint has.
  int64_t saved_at = -1, saved_judged = -1;
  const auto is_saved = [&] {
    const bool is_judged = saved_judged == run.selection.judged_step;
    return saved_at == run.attempt && (is_judged || !(estimates || decides(run, plan)));
  };
  std::map<std::string, Values> values_at_start;
  const auto has_ruined_weights = [&] { return is_ruined(values_at_start, worst_values(run)); };
  const auto write = [&](int64_t spared) {
    const bool together = writes_together(parts);
    if (!(is_first || together) || inputs.checkpoints.empty()) return;
    double ruined = has_ruined_weights() ? 1 : 0;
    if (together) ruined = sum_over_ranks(parts, ruined);
    if (ruined == 0) {
      result.checkpoint = save_checkpoint(run, parts, inputs, spared);
    } else if (is_first) {
      log("[train] step " + to_text(run.step()) + ": " + kRuinedWeights +
          "; no checkpoint of them is written");
    }
  };
  const auto checkpoint = [&](int64_t spared = 0) {
    write(spared);
    saved_at = run.attempt;  // on every rank, as some do together what follows from it
    saved_judged = run.selection.judged_step;
  };
  // Before an error that every rank meets ends the run. Why nothing could be written; empty: it is.
  // In steps, as each may fail on one rank alone, and the last is an exchange.
  const auto save_last = [&] {
    const auto look = [&] {
      if (has_ruined_weights()) throw RunError(kRuinedWeights);
    };
    std::string unsaved = failure_of(look, parts);
    if (unsaved.empty()) unsaved = failure_of([&] { checkpoint(/*spared=*/1); }, parts);
    return unsaved;
  };
  // Before an error that may be of this rank alone: no exchange. Why the state of the last update could not
  // be written; empty: it is, or there is none.
  const auto keep_state = [&]() -> std::string {
    const bool is_new = result.session_attempts > 0 && !is_saved();
    if (!is_new || run.applying || writes_together(parts)) return "";
    try {
      if (has_ruined_weights()) return kRuinedWeights;
      checkpoint(/*spared=*/1);
      return "";
    } catch (...) {
      return line_of_current();
    }
  };
  // As rank 0 writes them, it knows which is the last.
  const auto last_saved = [&] { return is_first ? last_checkpoint_text(inputs.checkpoints) : ""; };
  // What ends a run of one rank costs no trained step. Of several some may be amid an update.
  const auto saved_before_error = [&](const std::string& where, const auto& work) {
    try {
      return work();
    } catch (...) {
      const std::string unsaved = parts.parallel->alone() ? keep_state() : "";
      rethrow_with(where + unsaved_text(unsaved) + last_saved());
    }
  };
  run.selection.adopt(plan);
  int64_t evaluated_at = -1;  // a step
  std::string left_out;       // of evaluations, as the log told it
  bool among_best = false;    // this step is now, which makes it a checkpoint
  // All ranks are behind the same update. False where a stop was requested: then it is owed, as it is
  // behind an error, and no trace of it is left.
  const auto evaluation = [&] {
    const Untouched before(run, *parts.parallel);
    const bool is_news = run.selection.judged_step != run.step();  // else it is in the log
    std::optional<EvaluationReport> report;
    try {
      if (estimate()) {
        reseed(run, *parts.parallel, Draws::evaluation);
        report = evaluate_unless_stopped(run, parts, *inputs.eval, &left_out);
      }
      if (report) among_best = judge(run, plan, *report, is_first);
    } catch (const NothingToEvaluate&) {  // every rank meets it
      before.restore_after_error();
      const std::string unsaved = is_saved() ? "" : save_last();
      rethrow_with(unsaved_text(unsaved) + last_saved());
    } catch (...) {
      before.restore_after_error();
      const auto last = result.checkpoint;
      const std::string unsaved = keep_state();
      if (result.checkpoint != last) {
        log("[train] step " + to_text(run.step()) + " is saved; its evaluation failed and is owed");
      }
      rethrow_with(unsaved_text(unsaved) + last_saved());
    }
    trim_cpu_memory();  // its batches are larger, or smaller, than the steps'
    if (!report) {
      before.restore();
      return false;
    }
    evaluated_at = run.step();
    if (is_news) saved_before_error("", [&] { tell(*report, &Sink::evaluation); });
    result.evaluation = std::move(*report);
    return true;
  };
  begin_alike(run, parts);
  values_at_start = worst_values(run);
  if (inputs.eval != nullptr && !finished(run, plan)) {
    saved_before_error("", [&] { rehearse_evaluation(run, parts, *inputs.eval); });
    trim_cpu_memory();
    if (gauge.counts()) gauge.restart();  // the first step's peak is its own
  }
  LeakDetector growth(plan.guard.growth_steps);
  CacheRelease cache(plan.memory.release_cache, parts.device);
  BatchStream batches(make_loader(run, parts, inputs.train), *parts.parallel);
  bool stop_agreed = false;  // by several ranks, after an update
  bool applied = false;      // by the last attempt
  int64_t seen_epoch = -1;
  int64_t uncounted = 0;  // batches in a row of this epoch that counted nothing
  while (!finished(run, plan)) {
    const bool is_due = due(plan.checkpoint.every, run.step());
    if (applied && is_due) checkpoint();  // first: whatever comes of an evaluation
    applied = among_best = false;
    if (inputs.eval != nullptr && owes_evaluation(run, plan)) {
      if (!evaluation()) {
        result.ending = Ending::interrupted;
        break;
      }
      const bool decides = estimates || evaluations_decide(plan);
      if (among_best || (decides && is_due)) checkpoint();
    }
    if (finished(run, plan)) break;  // by that evaluation
    if (parts.parallel->alone() ? parts.stop_requested() : stop_agreed) {
      result.ending = Ending::interrupted;
      break;
    }
    if (plan.run.stop_after && result.session_steps >= *plan.run.stop_after) {
      result.ending = Ending::stopped;
      break;
    }
    const auto step_start = Clock::now();
    const int64_t reads = num_device_reads();
    const GlobalBatch batch =
        saved_before_error(where_of_batch(run, parts), [&] { return batches.next(); });
    if (batch.epoch > seen_epoch && seen_epoch >= 0) {
      saved_before_error("", [&] { tell_remarks(inputs.train, seen_epoch); });
    }
    if (batch.epoch != seen_epoch) uncounted = 0;
    seen_epoch = batch.epoch;
    const int64_t step_before = run.step();
    if (!parts.parallel->alone()) {  // for the others, if this rank is lost
      parts.parallel->communicator().set_state("step " + std::to_string(step_before + 1));
    }
    auto report = saved_before_error(
        "", [&] { return explained_update(run, parts, batch, inputs.train, memory); });
    if (!report) continue;  // abandoned: a stop was requested
    stop_agreed = report->stop_requested;
    report->seconds = seconds_since(step_start);
    report->memory_bytes = memory_now(parts.device);
    if (gauge.counts()) {
      peaks.push_back(gauge.peak());
      if (peaks.size() > kIncidentPeaks) peaks.pop_front();
      gauge.restart();
    }
    result.train_seconds += report->seconds;
    result.device_reads += num_device_reads() - reads;
    ++result.session_attempts;
    result.session_samples += report->samples;
    result.session_tokens += report->tokens;
    if (result.session_attempts == 1) result.first_step_seconds = seconds_since(start);
    saved_before_error("", [&] { tell(*report, &Sink::step); });
    for (const auto& objective : report->objectives) {
      if (objective.verdict.action == Action::halt) {
        // The refused update is not in the state, and its batch is behind it.
        const std::string unsaved = save_last();
        halt(*report, objective, plan, inputs.checkpoints, unsaved);
      }
    }
    uncounted = counted_nothing(*report) ? uncounted + 1 : 0;
    if (uncounted > 0 && uncounted >= plan.batch.steps_per_epoch) {  // it would go on for ever
      const std::string unsaved = save_last();
      throw DataError("[train] no batch of a whole epoch can be trained on (attempt " +
                      to_text(report->attempt) + ": " + report->culprit +
                      "); mend the labels and begin another run" + unsaved_text(unsaved));
    }
    applied = run.step() > step_before;
    growth.step([&] { return live_bytes(parts.device); });
    cache.after_step();
    result.skipped_steps += applied ? 0 : 1;
    result.session_steps += applied ? 1 : 0;
    result.last = std::move(report);
    if (applied) check_weights(run, parts);
  }
  if (sum_over_ranks(parts, has_ruined_weights() ? 1 : 0) > 0) {
    end_with_ruined_weights(run, plan, inputs.checkpoints);
  }
  // First of all: whatever comes of an evaluation, the training is not lost.
  if (!is_saved()) checkpoint();
  if (seen_epoch >= 0) {
    saved_before_error("", [&] { tell_remarks(inputs.train, seen_epoch); });
  }
  if (result.ending == Ending::finished) {
    const int64_t judged = run.selection.judged_step;
    const bool evaluates = inputs.eval != nullptr && evaluated_at != run.step();
    const bool is_done = evaluates ? evaluation() : inputs.eval != nullptr || estimate();
    if (!is_done) result.ending = Ending::interrupted;
    const bool is_decided = judged != run.selection.judged_step && decides(run, plan);
    if (is_done && (estimates || is_decided)) checkpoint();
    result.reason = run.selection.end_reason(plan);
  }
  for (Sink* sink : inputs.sinks) report_to_sink([&] { sink->flush(); });
  trim_cpu_memory();
  result.growth = growth.warning();
  result.recoveries = parts.recovery->num_failures();
  return result;
}

}  // namespace tanren
