#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <limits>

namespace tanren {

void plan_length(const Request& request, Plan& plan) {
  const auto& run = request.config.run;
  const int64_t most = std::numeric_limits<int64_t>::max() / plan.batch.steps_per_epoch;
  if (!run.steps && run.epochs.value_or(1) > most) {
    throw ConfigError(
        fmt::format("[plan] run.epochs {} × {} batches is no number of steps; lower it",
                    to_text(*run.epochs), to_text(plan.batch.steps_per_epoch)));
  }
  plan.length.steps = run.steps;
  plan.length.epochs = run.epochs;
  plan.length.total_steps =
      run.steps ? *run.steps : run.epochs.value_or(1) * plan.batch.steps_per_epoch;
  plan.lines.push_back(
      {"total_steps", to_text(plan.length.total_steps), run.steps ? Source::asked : Source::planned,
       run.steps
           ? "applied updates"
           : fmt::format("{} epochs × {} batches; a skipped update uses up its batch",
                         to_text(run.epochs.value_or(1)), to_text(plan.batch.steps_per_epoch))});
  if (run.max_time.empty()) return;
  plan.length.max_seconds = parse_seconds(run.max_time).value_or(0);
  plan.lines.push_back({"max_time", run.max_time, Source::asked,
                        "by then each start has saved and stopped; the same command resumes"});
}

}  // namespace tanren
