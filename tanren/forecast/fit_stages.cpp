#include "tanren/forecast/fit_stages.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/forecast/stage_search.h"
#include "tanren/train/step_error.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

namespace {

std::vector<std::string> names_at(const ModelBlocks& blocks, const PipelineCut& cut) {
  std::vector<std::string> names;
  for (const size_t place : cut) names.push_back(blocks.blocks[place].name);
  return names;
}

// "stage 2 of 4 (h.3 to h.5)"
std::string stage_text(const ModelBlocks& blocks, const PipelineCut& cut, size_t stage) {
  const size_t begin = stage == 0 ? 0 : cut[stage - 1];
  const size_t end = stage == cut.size() ? blocks.blocks.size() : cut[stage];
  std::string names = blocks.blocks[begin].name;
  if (end - begin > 1) names += " to " + blocks.blocks[end - 1].name;
  return fmt::format("stage {} of {} ({})", stage + 1, cut.size() + 1, names);
}

int64_t largest_need(const TriedCut& tried) { return tried.needs[tried.largest()]; }

// A change of the config, and the plan that follows.
struct Change {
  std::string what;
  Plan plan;
  int64_t least_room_bytes = 0;  // FitInput's
};

// "parallel.pipeline = 4 needs at most 1.2 GiB in each stage", if the fastest cut of such a plan
// fits; else empty. `change` may throw what the model or the run does not take.
std::string advice_of(FitInput input, const RunConfig& config,
                      const std::function<Change()>& change, CutBudget& budget) {
  try {
    const Change changed = change();
    input.least_room_bytes = changed.least_room_bytes;
    StageSearch search(input, config, changed.plan, *input.blocks, budget);
    const auto found = search.fastest();
    if (!found) return "";
    return fmt::format("{} needs at most {} in each stage", changed.what,
                       size_text(largest_need(*found)));
  } catch (const std::exception&) {
    return "";
  }
}

// The plan of the run with parallel.pipeline = `stages`. With ranks in threads the config
// determines their number. With processes their number grows with the stages, so that the number of
// replicas stays the same.
Change in_more_stages(const FitInput& input, RunConfig config, Plan plan, int64_t stages,
                      const std::string& open) {
  ParallelPlan& parallel = plan.parallel;
  const int64_t before = parallel.pipeline;
  int64_t least = input.least_room_bytes;
  if (config.parallel.ranks == "threads") {
    config.parallel.pipeline = stages;
    plan = input.plan(config);
  } else {
    parallel.world_size = parallel.world_size / before * stages;
    parallel.pipeline = stages;
    // "auto" and "80%" are shares of the machine's memory, which its processes share.
    const auto amount = parse_memory(config.memory.limit);
    const bool is_of_machine = plan.device.device == "cpu" && !(amount && amount->bytes > 0);
    if (is_of_machine) {
      plan.memory.limit_bytes = plan.memory.limit_bytes * before / stages;
      least = least * before / stages;
    }
  }
  const int64_t ranks = plan.parallel.world_size;
  return {fmt::format("parallel.pipeline = {}{} on {} ranks", stages, open, ranks), plan, least};
}

// Changes that would make the run fit. Each is tried by dry runs, with parallel.cut_at left open.
std::vector<std::string> changes_that_fit(const FitInput& input, const Plan& plan) {
  std::vector<std::string> changes;
  CutBudget budget;
  RunConfig config = input.config;
  const bool is_asked = !config.parallel.cut_at.empty();
  const std::string open = is_asked ? " with parallel.cut_at = []" : "";
  config.parallel.cut_at = {};
  const auto try_change = [&](const std::function<Change()>& change) {
    changes.push_back(advice_of(input, config, change, budget));
    return !changes.back().empty();
  };
  const auto same_ranks = [&](const std::string& what, const Plan& changed) {
    return Change{what, changed, input.least_room_bytes};
  };
  if (is_asked) try_change([&] { return same_ranks("parallel.cut_at = []", plan); });
  const int64_t most = std::min<int64_t>(std::ssize(input.blocks->blocks), 32);
  for (int64_t stages = 2 * plan.parallel.pipeline; stages <= most; stages *= 2) {
    if (try_change([&] { return in_more_stages(input, config, plan, stages, open); })) break;
  }
  if (plan.memory.recompute.empty()) {
    Plan recomputed = plan;
    recomputed.memory.recompute = {"*"};
    try_change([&] { return same_ranks("memory.recompute = [\"*\"]" + open, recomputed); });
  }
  for (int64_t size = plan.batch.microbatch / 2; size >= 1; size /= 2) {
    config.batch.microbatch = size;
    const std::string norms =
        input.couples_samples ? " (batch norm then sees fewer samples at once)" : "";
    if (try_change([&] {
          return same_ranks(fmt::format("batch.microbatch = {}{}{}", size, open, norms),
                            input.plan(config));
        })) {
      break;
    }
  }
  std::erase(changes, "");
  return changes;
}

bool is_of_another_rank(const FitInput& input, const Plan& plan, int64_t room) {
  return room != room_for_step(plan, standing_beside(input, plan));
}

// "each stage 1.2 GiB beside 3.0 MiB of data"
std::string room_text(const FitInput& input, const Plan& plan, int64_t room) {
  const int64_t standing = standing_beside(input, plan);
  return fmt::format("{} {}{}", sharers(plan) > 1 ? "each stage" : "a stage", size_text(room),
                     standing > 0 ? " beside " + size_text(standing) + " of data" : "");
}

[[noreturn]] void refuse_stages(const FitInput& input, const Plan& plan, const TriedCut& tried,
                                int64_t room) {
  const size_t largest = tried.largest();
  const StagePrediction& stage = tried.stages[largest];
  const int64_t need = tried.needs[largest];
  const int64_t ranks = sharers(plan);
  const int64_t standing = standing_beside(input, plan);
  const std::string limit = is_of_another_rank(input, plan, room)
                                ? "the least memory.limit of all ranks"
                                : "memory.limit " + size_text(plan.memory.limit_bytes);
  std::string text = fmt::format("[plan] {} leaves {}", limit, room_text(input, plan, room));
  int64_t least = taken(tried.start_bytes);
  if (fits(need, room)) {
    text += fmt::format(", and while the ranks make their stages one after the other they hold {}",
                        size_text(tried.start_bytes));
  } else {
    least = std::max(least, ranks * taken(need));
    text += fmt::format(
        ", and {} needs {} ({}), {} more{}", stage_text(*input.blocks, tried.cut, largest),
        size_text(need),
        need > stage.step.peak_bytes
            ? "to make the whole model, before it drops what other stages hold"
            : breakdown(stage.step),
        size_text(taken(need) - room),
        input.config.parallel.cut_at.empty() ? ", and no other cut that was tried fits" : "");
  }
  const int64_t mebibytes = smallest_limit(least + standing);
  text += is_more_than_device(plan.memory, mebibytes)
              ? std::string("; the device has less; memory.limit = \"none\" tries it all the same")
              : fmt::format("; a limit for this cut: memory.limit = \"{}MiB\"", mebibytes);
  for (const std::string& change : changes_that_fit(input, plan)) text += "; " + change;
  throw LimitError(text);
}

void tell_peaks(const FitInput& input, const TriedCut& tried, int64_t room, Plan& plan) {
  for (size_t i = 0; i < tried.stages.size(); ++i) {
    const MemoryPrediction& step = tried.stages[i].step;
    plan_line(plan, fmt::format("stage_{}", i + 1)).reason +=
        fmt::format("; its peak: {} ({})", size_text(step.peak_bytes), breakdown(step));
  }
  const auto largest = std::max_element(tried.stages.begin(), tried.stages.end(),
                                        [](const auto& one, const auto& other) {
                                          return one.step.peak_bytes < other.step.peak_bytes;
                                        });
  std::string reason = fmt::format(
      "of stage {} of {}, the largest; by {}; at the start {} of the whole model's weights",
      largest - tried.stages.begin() + 1, tried.stages.size(), largest->step.how,
      size_text(largest->whole_bytes));
  if (room > 0) {
    reason +=
        fmt::format("; {} leaves {}",
                    is_of_another_rank(input, plan, room) ? "the least memory_limit of all ranks"
                                                          : "memory_limit",
                    room_text(input, plan, room));
  }
  plan.lines.push_back(
      {"predicted_peak", size_text(largest->step.peak_bytes), Source::planned, reason});
}

// The config's plan with this cut.
Plan cut_elsewhere(const FitInput& input, const PipelineCut& cut) {
  RunConfig config = input.config;
  config.parallel.cut_at = names_at(*input.blocks, cut);
  Plan plan = input.plan(config);
  PlanLine& line = plan_line(plan, "cut_at");
  line.source = Source::planned;
  line.reason =
      "the first block of each later stage, so that the slowest stage has the fewest multiply-adds "
      "of the cuts that were tried and fit memory_limit";
  return plan;
}

}  // namespace

Fitted fit_stages(const FitInput& input) {
  Fitted fitted{.config = input.config, .plan = input.plan(input.config)};
  Plan& plan = fitted.plan;
  const auto leave_unknown = [&](const std::string& why) {
    plan.lines.push_back({"predicted_peak", "unknown", Source::planned, why});
  };
  if (!input.blocks) {
    leave_unknown("the model's blocks are not known");
    return fitted;
  }
  try {
    const Plan asked = plan;
    CutBudget budget;
    StageSearch search(input, input.config, asked, *input.blocks, budget);
    const bool is_open = input.config.parallel.cut_at.empty();
    TriedCut tried;
    try {
      tried = search.tried(cut_named(*input.blocks, asked.parallel.cut_at));
    } catch (const std::exception&) {
      auto other = is_open ? search.fastest() : std::nullopt;
      if (!other) throw;
      plan = cut_elsewhere(input, other->cut);
      tried = std::move(*other);
    }
    if (!tried.fits && is_open) {
      if (auto other = search.fastest()) {
        plan = cut_elsewhere(input, other->cut);
        tried = std::move(*other);
      } else if (auto smallest = search.smallest()) {
        plan = cut_elsewhere(input, smallest->cut);
        tried = std::move(*smallest);
        plan_line(plan, "cut_at").reason =
            std::string(
                "the first block of each later stage, so that the largest stage has the "
                "fewest bytes; ") +
            (tried.fits ? "faster cuts do not fit memory_limit"
                        : "no cut that was tried fits memory_limit");
      }
    }
    if (!tried.fits) {
      // The prediction counts the CPU's operators. The device's own operators may take less memory.
      const bool is_asked = input.config.asked.count("memory.limit") > 0;
      if (plan.device.device == "cpu" || is_asked) {
        refuse_stages(input, asked, tried, search.room());
      }
      fitted.remarks.push_back(fmt::format(
          "[plan] {} may not fit the device: {} are predicted of the {} that it has; the run tries "
          "it",
          stage_text(*input.blocks, tried.cut, tried.largest()), size_text(largest_need(tried)),
          size_text(plan.memory.limit_bytes)));
    }
    tell_peaks(input, tried, search.room(), plan);
    fitted.stages = std::move(tried.stages);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {  // also torch's own; the run itself will report it
    leave_unknown(said_by(error));
  }
  return fitted;
}

}  // namespace tanren
