#include "tanren/train/run_ends.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"

namespace tanren {

namespace {

// How the run in whose folder `checkpoints` lies goes on; empty where that is no run folder.
std::string way_on(const std::filesystem::path& checkpoints, const ParallelPlan& parallel,
                   const std::string& where) {
  const auto folder = checkpoints.parent_path();
  if (checkpoints.empty() || !std::filesystem::exists(folder / "config.toml")) return "";
  const bool launched =
      parallel.launcher == "tanren launch" && parallel.local_ranks == parallel.world_size;
  return "; then " + where + ": tanren " +
         (launched ? "launch -n " + std::to_string(parallel.world_size) + " " : "") + "run " +
         folder.string() + " --set optimizer.learning_rate=…";
}

std::string last_checkpoint_text(const std::filesystem::path& checkpoints) {
  const auto last = checkpoints.empty() ? std::nullopt : latest_checkpoint(checkpoints);
  return "; last checkpoint: " + (last ? last->string() : "none");
}

}  // namespace

void halt(const StepReport& report, const ObjectiveReport& objective, const Plan& plan,
          const std::filesystem::path& checkpoints, const std::string& unsaved) {
  const bool loss = objective.verdict.cause == Cause::nan_loss;
  const bool stop = (loss ? plan.guard.nan_loss : plan.guard.nan_gradient) == "stop";
  std::string line = "[guard] step " + std::to_string(objective.step + 1) + " (attempt " +
                     std::to_string(report.attempt) +
                     "): " + std::string(name(objective.verdict.cause));
  if (!stop)
    line += ", " + std::to_string(plan.guard.max_skips) + " skips in a row (guard.max_skips)";
  if (!report.culprit.empty()) line += " in " + report.culprit;
  const auto last = checkpoints.empty() ? std::nullopt : latest_checkpoint(checkpoints);
  line += "; nothing was applied; last checkpoint: " + (last ? last->string() : "none");
  if (!unsaved.empty()) line += ", one of this state could not be written (" + unsaved + ")";
  throw RunError(line + "; lower the learning rate, clip, or look at that data" +
                 way_on(checkpoints, plan.parallel,
                        !last             ? "begin again"
                        : unsaved.empty() ? "go on behind that batch"
                                          : "go on from there"));
}

void end_with_ruined_weights(const RunState& run, const Plan& plan,
                             const std::filesystem::path& checkpoints) {
  const auto last = last_checkpoint_text(checkpoints);
  throw RunError("[train] step " + to_text(run.step()) + ": " + kRuinedWeights + last +
                 "; lower the learning rate, or clip" +
                 way_on(checkpoints, plan.parallel,
                        last.ends_with(": none") ? "begin again" : "go on from there"));
}

std::string unsaved_text(const std::string& unsaved) {
  return unsaved.empty() ? "" : "; no checkpoint of this state was written (" + unsaved + ")";
}

}  // namespace tanren
