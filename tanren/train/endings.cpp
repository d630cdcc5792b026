#include "tanren/train/endings.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/comm/exchange.h"
#include "tanren/metrics/queued_sink.h"

#include <c10/util/Exception.h>

#include <exception>

namespace tanren {

namespace {

// Text: what an update has applied although one of its objectives halts, namely the phases before
// that objective's.
std::string applied_text(const StepReport& report) {
  std::string applied;
  for (const auto& objective : report.objectives) {
    if (objective.verdict.action != Action::apply) continue;
    applied += (applied.empty() ? "" : ", ") + objective.name;
  }
  if (applied.empty()) return "nothing was applied";
  return "the update of " + applied + " was applied before it, and nothing else";
}

// How the run whose folder holds `checkpoints` can be continued; empty if that is no run folder.
std::string way_on(const std::filesystem::path& checkpoints, const ParallelPlan& parallel,
                   const std::string& where) {
  const auto folder = checkpoints.parent_path();
  if (checkpoints.empty() || !std::filesystem::exists(folder / "config.toml")) return "";
  const bool launched =
      parallel.launcher == "tanren launch" && parallel.local_ranks == parallel.world_size;
  return fmt::format("; then {}: tanren {}run {} --set optimizer.learning_rate=…", where,
                     launched ? fmt::format("launch -n {} ", parallel.world_size) : "",
                     folder.string());
}

}  // namespace

std::string failure_of(const std::function<void()>& work, const Parts& parts) {
  std::string failure;
  try {
    work();
  } catch (...) {
    failure = line_of_current();
  }
  if (parts.ranks->world().alone()) return failure;
  try {
    for (const auto& text : gather_texts(parts.ranks->world().communicator(), failure)) {
      if (failure.empty()) failure = text;
    }
  } catch (const std::exception& error) {
    if (failure.empty()) failure = line_of(error);
  }
  return failure;
}

std::string unsaved_text(const std::string& unsaved) {
  return unsaved.empty() ? "" : "; no checkpoint of this state was written (" + unsaved + ")";
}

std::string last_checkpoint_text(const std::filesystem::path& checkpoints) {
  if (checkpoints.empty()) return "";
  const auto last = latest_checkpoint(checkpoints);
  return "; last checkpoint: " + (last ? last->string() : "none");
}

void halt(const StepReport& report, const ObjectiveReport& objective, const Plan& plan,
          const std::filesystem::path& checkpoints, const std::string& unsaved) {
  std::string line = fmt::format(
      "[guard] step {} (attempt {}): {}{}", objective.step + 1, report.attempt,
      report.several ? "objective " + objective.name + ": " : "", name(objective.verdict.cause));
  if (objective.verdict.at_max_skips)
    line += fmt::format(", {} skips in a row (guard.max_skips)", plan.guard.max_skips);
  if (!report.culprit.empty()) line += " in " + report.culprit;
  const auto last = checkpoints.empty() ? std::nullopt : latest_checkpoint(checkpoints);
  line += fmt::format("; {}; last checkpoint: {}", applied_text(report),
                      last ? last->string() : "none");
  if (!unsaved.empty()) line += ", one of this state could not be written (" + unsaved + ")";
  throw NonFiniteError(line + "; lower the learning rate, clip, or look at that data" +
                       way_on(checkpoints, plan.parallel,
                              !last             ? "begin again"
                              : unsaved.empty() ? "resume after that batch"
                                                : "resume from there"));
}

void end_with_ruined_weights(const RunState& run, const Plan& plan,
                             const std::filesystem::path& checkpoints) {
  const std::string last =
      checkpoints.empty() ? "; last checkpoint: none" : last_checkpoint_text(checkpoints);
  throw NonFiniteError(
      fmt::format("[train] step {}: {}{}; lower the learning rate, or clip{}", to_text(run.step()),
                  kRuinedWeights, last,
                  way_on(checkpoints, plan.parallel,
                         last.ends_with(": none") ? "begin again" : "resume from there")));
}

void rethrow_with(const std::string& more) {
  if (more.empty()) throw;
  try {
    throw;
  } catch (const CommError&) {  // the failure of another rank
    throw;
  } catch (const c10::OutOfMemoryError&) {  // run/failure.cpp adds the text
    throw;
  } catch (const DataError& error) {
    std::throw_with_nested(DataError(error.what() + more));
  } catch (const ConfigError& error) {
    std::throw_with_nested(ConfigError(error.what() + more));
  } catch (const InputError& error) {
    std::throw_with_nested(InputError(error.what() + more));
  } catch (const MemoryError& error) {
    std::throw_with_nested(MemoryError(error.what() + more));
  } catch (const Error& error) {
    std::throw_with_nested(RunError(error.what() + more));
  } catch (...) {
    std::throw_with_nested(RunError("[train] " + line_of_current() + more));
  }
}

void report_to_sink(const std::function<void()>& telling) {
  try {
    telling();
  } catch (const Error&) {  // already an error of this library
    throw;
  } catch (...) {
    std::throw_with_nested(
        RunError("[metrics] a sink failed: " + line_of_current() + "; fix it, or leave it out"));
  }
}

std::exception_ptr flush_for_checkpoint(Sink& sink) {
  try {
    sink.flush();
  } catch (const RecordError&) {
    return std::current_exception();
  } catch (...) {
    log("[metrics] a sink failed in flush: " + line_of_current() +
        "; the checkpoint is written all the same");
  }
  return nullptr;
}

void end_with_unwritten(const std::exception_ptr& failure, const std::filesystem::path& written) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (...) {
    rethrow_with("; last checkpoint: " + written.string());
  }
}

}  // namespace tanren
