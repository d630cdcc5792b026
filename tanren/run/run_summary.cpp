#include "tanren/run/run_summary.h"

#include "tanren/memory/cpu_allocator.h"
#include "tanren/metrics/jsonl_sink.h"
#include "tanren/run/earlier_summary.h"
#include "tanren/run/failure.h"
#include "tanren/train/memory_now.h"

#include <exception>
#include <filesystem>
#include <utility>

namespace tanren {

namespace {

Summary counted(int64_t steps, int64_t attempts) {
  Summary summary;
  summary.steps = steps;
  summary.attempts = attempts;
  summary.skipped_steps = attempts - steps;
  return summary;
}

// The figures of a start that has made no update.
Summary at_start(const RunFolder& folder) {
  const RunCounts counts = counts_at(folder.resume_from());
  return counted(counts.steps, counts.attempts);
}

}  // namespace

Summary summarise(const RunState& state, const LoopResult& loop, const Parts& parts) {
  Summary summary = counted(state.step(), state.attempt);
  summary.wall_seconds = loop.train_seconds;
  if (loop.train_seconds > 0) {
    summary.samples_per_second = static_cast<double>(loop.session_samples) / loop.train_seconds;
    summary.tokens_per_second = static_cast<double>(loop.session_tokens) / loop.train_seconds;
  }
  if (loop.last && !loop.last->objectives.empty()) {
    summary.final_loss = loop.last->objectives.front().loss;
  }
  summary.final_losses.assign(loop.losses.begin(), loop.losses.end());
  if (loop.evaluation) summary.evaluate = loop.evaluation->values;
  summary.peak_memory_bytes = memory_now(parts.device);
  if (parts.plan.memory.own_allocator) {
    summary.peak_tensor_bytes = cpu_memory_stats().peak_bytes;
  }
  summary.out_of_memory = loop.recoveries;
  summary.growth = loop.growth;
  summary.device_reads_per_step =
      loop.session_attempts > 0
          ? static_cast<double>(loop.device_reads) / static_cast<double>(loop.session_attempts)
          : 0;
  if (!state.selection.best.empty()) {
    const auto& best = state.selection.best.front();
    summary.best_step = best.step;
    summary.best_value = best.value;
    summary.best_metric = parts.plan.best.metric;
  }
  summary.reason = loop.reason;
  summary.status = loop.ending == Ending::finished ? "finished" : "stopped";
  return summary;
}

ReachedScope::ReachedScope(std::optional<Summary>* reached, const RunState& state,
                           const LoopResult& loop, const Parts& parts)
    : reached_(reached),
      state_(state),
      loop_(loop),
      parts_(parts),
      exceptions_(std::uncaught_exceptions()) {}

ReachedScope::~ReachedScope() {
  if (reached_ == nullptr || std::uncaught_exceptions() == exceptions_) return;
  try {
    *reached_ = counted(state_.step(), state_.attempt);
    *reached_ = summarise(state_, loop_, parts_);
  } catch (...) {  // a device that failed does not tell its memory
  }
}

void note_failure(const RunFolder& folder, const std::optional<Summary>& reached,
                  double seconds) noexcept {
  try {
    // Without a config the folder is no run's, and the next start would refuse it.
    if (!folder.began() || !std::filesystem::exists(folder.path() / "config.toml")) return;
    Failure failure = failure_of_current();
    Summary summary = reached ? *reached : at_start(folder);
    const auto logged = last_loss(folder.log(), summary.attempts);
    summary.final_loss = logged.value_or(summary.final_loss);
    summary.wall_seconds = seconds;
    summary.status = "failed";
    summary.reason = std::move(failure.reason);
    summary.cause = std::move(failure.cause);
    const bool has_trained = reached.has_value();
    folder.write("summary.json", failed_summary(folder.path(), summary, has_trained) + "\n");
  } catch (...) {  // above all a full disk
  }
}

}  // namespace tanren
