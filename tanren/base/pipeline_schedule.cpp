#include "tanren/base/pipeline_schedule.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace tanren {

namespace {

// The times at which the window's actions ended.
class ActionEnds {
 public:
  void set(const PipelineAction& action, double time) { ends_[key(action)] = time; }
  // No value before the action has run.
  std::optional<double> of(const PipelineAction& action) const {
    const auto found = ends_.find(key(action));
    return found == ends_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  using Key = std::tuple<Act, int64_t, int64_t>;
  static Key key(const PipelineAction& action) {
    return {action.act, action.stage, action.microbatch};
  }
  std::map<Key, double> ends_;
};

// The time at which the action can start: its message has arrived and, for a backward, its own
// forward has ended. No value if these have not run yet.
std::optional<double> ready_at(const PipelineAction& action, int64_t stages, double transfer,
                               const ActionEnds& ends) {
  double ready = 0;
  if (action.act == Act::backward) {
    const auto own = ends.of({Act::forward, action.stage, action.microbatch});
    if (!own) return std::nullopt;
    ready = *own;
  }
  if (const auto from = receives_from(action, stages)) {
    const auto sent = ends.of({action.act, *from, action.microbatch});
    if (!sent) return std::nullopt;
    ready = std::max(ready, *sent + transfer);
  }
  return ready;
}

std::string action_text(const PipelineAction& action) {
  return fmt::format("the {} of microbatch {}", action.act == Act::forward ? "forward" : "backward",
                     action.microbatch);
}

}  // namespace

std::vector<PipelineAction> pipeline_actions(PipelineSchedule kind, int64_t stage, int64_t stages,
                                             int64_t microbatches) {
  if (stage < 0 || stage >= stages || microbatches < 0) {
    throw Error(fmt::format("[pipeline] there is no stage {} of {} with {} microbatches", stage,
                            stages, microbatches));
  }
  const bool is_gpipe = kind == PipelineSchedule::gpipe;
  // Forwards before the first pair of a forward and a backward.
  const int64_t ahead = is_gpipe ? microbatches : std::min(stages - 1 - stage, microbatches);
  std::vector<PipelineAction> actions;
  actions.reserve(static_cast<size_t>(2 * microbatches));
  for (int64_t i = 0; i < ahead; ++i) actions.push_back({Act::forward, stage, i});
  for (int64_t i = 0; i < microbatches; ++i) {
    if (ahead + i < microbatches) actions.push_back({Act::forward, stage, ahead + i});
    actions.push_back({Act::backward, stage, i});
  }
  return actions;
}

std::optional<int64_t> receives_from(const PipelineAction& action, int64_t stages) {
  const int64_t from = action.stage + (action.act == Act::forward ? -1 : 1);
  return from < 0 || from >= stages ? std::nullopt : std::optional(from);
}

std::optional<int64_t> sends_to(const PipelineAction& action, int64_t stages) {
  const int64_t to = action.stage + (action.act == Act::forward ? 1 : -1);
  return to < 0 || to >= stages ? std::nullopt : std::optional(to);
}

int64_t most_in_flight(const std::vector<PipelineAction>& actions) {
  int64_t now = 0, most = 0;
  for (const PipelineAction& action : actions) {
    now += action.act == Act::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

PipelineTimes simulate_pipeline(PipelineSchedule kind, int64_t stages, int64_t microbatches,
                                const PipelineDurations& durations) {
  std::vector<std::vector<PipelineAction>> actions;
  for (int64_t stage = 0; stage < stages; ++stage) {
    actions.push_back(pipeline_actions(kind, stage, stages, microbatches));
  }
  return simulate_pipeline(actions, durations);
}

PipelineTimes simulate_pipeline(const std::vector<std::vector<PipelineAction>>& actions,
                                const PipelineDurations& durations) {
  const size_t stages = actions.size();
  if (durations.forward.size() != stages || durations.backward.size() != stages) {
    throw Error(fmt::format("[pipeline] {} stages need as many durations, not {} and {}", stages,
                            durations.forward.size(), durations.backward.size()));
  }
  ActionEnds ends;
  std::vector<size_t> next(stages, 0);
  std::vector<double> free_at(stages, 0);
  double busy = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < stages; ++stage) {
      for (; next[stage] < actions[stage].size(); ++next[stage]) {
        const PipelineAction& action = actions[stage][next[stage]];
        const auto ready = ready_at(action, static_cast<int64_t>(stages), durations.transfer, ends);
        if (!ready) break;
        const double seconds =
            action.act == Act::forward ? durations.forward[stage] : durations.backward[stage];
        free_at[stage] = std::max(free_at[stage], *ready) + seconds;
        ends.set(action, free_at[stage]);
        busy += seconds;
        moved = true;
      }
    }
  }
  PipelineTimes times;
  for (size_t stage = 0; stage < stages; ++stage) {
    if (next[stage] < actions[stage].size()) {
      throw Error(fmt::format("[pipeline] stage {} waits for ever before {}; give another order",
                              stage, action_text(actions[stage][next[stage]])));
    }
    times.makespan = std::max(times.makespan, free_at[stage]);
    times.most_in_flight.push_back(most_in_flight(actions[stage]));
  }
  const double whole = times.makespan * static_cast<double>(stages);
  if (whole > 0) times.bubble = (whole - busy) / whole;
  return times;
}

}  // namespace tanren
