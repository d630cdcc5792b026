#include "tanren/forecast/fit_memory.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/forecast/enough_samples.h"
#include "tanren/forecast/fit_stages.h"
#include "tanren/forecast/fitting_stages.h"
#include "tanren/forecast/smaller_models.h"
#include "tanren/forecast/stage_search.h"
#include "tanren/memory/gauge.h"
#include "tanren/train/step_error.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

// Tries configs against the limit, by dry runs if the model can run dry.
class Fitter {
 public:
  explicit Fitter(const FitInput& input) : input_(input) {}

  Tried with(const RunConfig& config) const { return try_config(input_, config); }

  Tried with_microbatch(RunConfig config, int64_t microbatch) const {
    config.batch.microbatch = microbatch;
    return with(config);
  }

  // The largest microbatch below `planned` that fits; the smallest if none does.
  Tried largest_microbatch(const RunConfig& config, int64_t planned) const {
    Tried best = smallest_microbatch(config, planned);
    if (!best.fits) return best;
    int64_t low = best.plan.batch.microbatch, high = planned;  // low fits, high does not
    const int64_t multiple = input_.counts.multiple;
    while (high - low > multiple) {
      const int64_t half = (high - low) / 2;
      const int64_t middle = low + std::max(half - half % multiple, multiple);
      Tried next = with_microbatch(config, middle);
      if (next.fits) {
        best = std::move(next);
        low = middle;
      } else {
        high = middle;
      }
    }
    const int64_t even = with_enough(best.plan.batch, input_.dataset->size(),
                                     sample_counts(input_, best.prediction));
    return even == best.plan.batch.microbatch ? best : with_microbatch(config, even);
  }

  // Recomputes the fewest blocks that make the step fit, and prefers blocks that free the most
  // bytes per multiply-add. Recomputes all blocks if the step does not fit even then. No value if
  // no block can be recomputed.
  std::optional<Tried> fewest_recomputed(const Tried& start) const {
    std::vector<BlockUse> blocks = start.prediction.blocks;
    const auto gain = [](const BlockUse& block) {
      return static_cast<double>(block.held_bytes) / static_cast<double>(1 + block.multiply_adds);
    };
    std::stable_sort(blocks.begin(), blocks.end(),
                     [&](const auto& a, const auto& b) { return gain(a) > gain(b); });
    std::vector<std::string> names;
    for (const auto& block : blocks) {
      if (can_recompute(start.config, block.name)) names.push_back(block.name);
    }
    if (names.empty()) return std::nullopt;
    const auto first = [&](size_t count) {
      RunConfig config = start.config;
      config.memory.recompute.assign(names.begin(), names.begin() + static_cast<int64_t>(count));
      return with(config);
    };
    Tried best = first(names.size());
    if (!best.fits) return best;
    size_t low = 0, high = names.size();  // high fits
    while (high - low > 1) {
      const size_t middle = low + (high - low) / 2;
      Tried next = first(middle);
      if (next.fits) {
        best = std::move(next);
        high = middle;
      } else {
        low = middle;
      }
    }
    return best;
  }

 private:
  // One sample is too few for some models: torch's batch norm wants two values a channel.
  Tried smallest_microbatch(const RunConfig& config, int64_t planned) const {
    const int64_t least = input_.least_samples;
    try {
      return with_microbatch(config, least);
    } catch (const ConfigError&) {
      throw;
    } catch (const std::exception&) {
      if (planned <= 2 || least > 1) throw;
    }
    return with_microbatch(config, 2);
  }

  bool can_recompute(RunConfig config, const std::string& name) const {
    config.memory.recompute = {name};
    try {
      with(config);
    } catch (const std::exception&) {  // no such block, or one that cannot run twice
      return false;
    }
    return true;
  }

  const FitInput& input_;
};

bool is_asked(const RunConfig& config, const char* key) { return config.asked.count(key) > 0; }

// The config. If it leaves the microbatch open and the planned one is larger than the model takes,
// sets one that the model takes.
RunConfig within_most(const FitInput& input) {
  RunConfig config = input.config;
  const SampleCounts counts = sample_counts(input, {});
  if (is_asked(config, "batch.microbatch")) return config;
  BatchPlan batch = input.plan(config).batch;
  if (batch.microbatch <= counts.most) return config;
  batch.microbatch = counts.most - counts.most % counts.multiple;
  config.batch.microbatch = with_enough(batch, input.dataset->size(), counts);
  return config;
}

void explain(Plan& plan, const MemoryPrediction& prediction, int64_t standing_bytes) {
  std::string reason = breakdown(prediction) + "; by " + prediction.how;
  const int64_t room = room_for_step(plan, standing_bytes);
  const int64_t ranks = plan.parallel.thread_ranks();
  const std::string each = ranks > 1 ? fmt::format(" each of {} replicas", ranks) : "";
  if (room > 0) {
    reason += "; of " + size_text(room) + " that memory_limit leaves" + each;
    if (standing_bytes > 0) reason += " beside " + size_text(standing_bytes) + " of data";
  } else if (!each.empty()) {
    reason += "; in" + each;
  }
  plan.lines.push_back(
      {"predicted_peak", size_text(prediction.peak_bytes), Source::planned, reason});
}

// Advice for one more change that would make the step fit; empty if it would not.
std::string advice(const Fitter& fitter, RunConfig config, const std::string& what) {
  try {
    const auto other = fitter.with(config);
    return other.fits ? what + " needs " + size_text(other.prediction.peak_bytes) : "";
  } catch (const std::exception&) {
    return "";
  }
}

// Advice for the longest samples that fit: the length halved repeatedly; empty if no length fits.
std::string shorter(const FitInput& input, const Tried& least) {
  const StepPredictor predictor = predictor_of(input, least.config);
  const int64_t length = predictor.length();
  try {
    for (int64_t part = length / 2; part >= 8; part /= 2) {
      const int64_t peak = predictor.step(least.plan, part).peak_bytes;
      if (fits(peak, room_for_step(least.plan, standing_beside(input, least.plan)))) {
        return fmt::format("samples of {} tokens instead of {} need {}", part, length,
                           size_text(peak));
      }
    }
  } catch (const std::exception&) {  // the model takes one length only
  }
  return "";
}

[[noreturn]] void refuse(const FitInput& input, const Fitter& fitter, const Tried& least) {
  const int64_t replicas = sharers(least.plan), fewest = least_samples(input, least.prediction);
  const int64_t standing = standing_beside(input, least.plan);
  const int64_t needs = replicas * taken(least.prediction.peak_bytes) + standing;
  std::string text = fmt::format(
      "[plan] memory.limit {} is less than a step needs with {} sample{} at once{}{}: {} ({}){}{}",
      size_text(least.plan.memory.limit_bytes), least.plan.batch.microbatch,
      least.plan.batch.microbatch == 1 ? "" : "s",
      fewest > 1 && least.plan.batch.microbatch <= fewest ? " (the model takes no fewer)" : "",
      least.plan.memory.recompute.empty() ? "" : " and blocks recomputed",
      size_text(least.prediction.peak_bytes), breakdown(least.prediction),
      replicas > 1 ? fmt::format(" in each of {} replicas", replicas) : "",
      standing > 0 ? " beside " + size_text(standing) + " of data" : "");
  const int64_t mebibytes = smallest_limit(needs);
  if (is_more_than_device(least.plan.memory, mebibytes)) {
    text += "; the device has less; memory.limit = \"none\" tries it all the same";
  } else {
    text += fmt::format("; the smallest limit that works: memory.limit = \"{}MiB\"", mebibytes);
  }
  std::vector<std::string> others;
  if (least.plan.batch.microbatch > fewest && is_asked(input.config, "batch.microbatch")) {
    try {
      const auto other = fitter.largest_microbatch(least.config, least.plan.batch.microbatch);
      if (other.fits) {
        others.push_back(fmt::format("batch.microbatch = {} needs {}", other.plan.batch.microbatch,
                                     size_text(other.prediction.peak_bytes)));
      }
    } catch (const std::exception&) {  // the model takes one batch size: skip this advice
    }
  }
  if (packs_state(input.config.optimizer) && input.config.optimizer.state == "fp32") {
    RunConfig config = least.config;
    set_state(config, "8bit");
    others.push_back(advice(fitter, config, "optimizer.state = \"8bit\""));
  }
  others.push_back(shorter(input, least));
  others.push_back(fitting_stages(input, least));
  for (auto& [what, config] : smaller_models(least.config)) {
    config.memory.recompute = input.config.memory.recompute;  // the smaller one may lack blocks
    std::string text = advice(fitter, config, what);
    if (text.empty()) {
      config.memory.recompute = {"*"};
      text = advice(fitter, config, what);
    }
    others.push_back(text);
    if (!text.empty()) break;
  }
  others.erase(std::remove(others.begin(), others.end(), ""), others.end());
  for (const auto& other : others) text += "; " + other;
  throw LimitError(text);
}

}  // namespace

std::string breakdown(const MemoryPrediction& prediction) {
  std::string text;
  for (const auto& [kind, bytes] : kinds_by_size(prediction.at_peak)) {
    text += (text.empty() ? "" : ", ") + kind + " " + size_text(bytes);
  }
  return text;
}

PlanLine& plan_line(Plan& plan, const std::string& key) {
  for (auto& line : plan.lines) {
    if (line.key == key) return line;
  }
  return plan.lines.emplace_back(PlanLine{key, "", Source::planned, ""});
}

Fitted fit_memory(const FitInput& input) {
  if (input.config.parallel.pipeline > 1) return fit_stages(input);
  const RunConfig start = within_most(input);
  const auto explain_most = [&](Plan& plan) {
    if (start.batch.microbatch == input.config.batch.microbatch) return;
    PlanLine& line = plan_line(plan, "microbatch");
    line.source = Source::planned;
    line.reason = fmt::format("the model takes at most {} samples at once; {}",
                              to_text(input.counts.most), line.reason);
  };
  const auto unknown = [&](const std::string& why) -> Fitted {
    Plan plan = input.plan(start);
    explain_most(plan);
    plan.lines.push_back({"predicted_peak", "unknown", Source::planned, why});
    return {.config = start, .plan = std::move(plan), .prediction = std::nullopt};
  };
  const Fitter fitter(input);
  Tried found;
  try {
    found = fitter.with(start);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {  // also torch's own; the run itself will report it
    return unknown(said_by(error));
  }
  const int64_t asked_peak = found.prediction.peak_bytes;
  const int64_t wanted = found.plan.batch.microbatch;
  const bool free_microbatch = !is_asked(input.config, "batch.microbatch") &&
                               wanted > least_samples(input, found.prediction);
  const bool free_recompute = !is_asked(input.config, "memory.recompute");
  const auto smaller = [&] {
    if (found.fits || !free_microbatch) return;
    try {
      found = fitter.largest_microbatch(found.config, wanted);
    } catch (const ConfigError&) {
      throw;
    } catch (const std::exception&) {  // the model takes one batch size only
    }
  };
  const auto recompute = [&] {
    if (found.fits || !free_recompute) return;
    if (auto other = fitter.fewest_recomputed(found)) found = std::move(*other);
  };
  if (input.couples_samples) {  // another microbatch would change batch norm's results
    recompute();
    smaller();
  } else {
    smaller();
    recompute();
  }
  std::vector<std::string> remarks;
  if (!found.fits) {
    // The prediction counts the CPU's operators. The device's own operators may take less memory.
    if (found.plan.device.device == "cpu" || is_asked(input.config, "memory.limit")) {
      refuse(input, fitter, found);
    }
    remarks.push_back(fmt::format(
        "[plan] a step may not fit the device: {} are predicted of the {} that it has; the run "
        "tries it, with a smaller microbatch if memory runs out (memory.recovery)",
        size_text(found.prediction.peak_bytes), size_text(found.plan.memory.limit_bytes)));
  }
  explain_most(found.plan);
  const std::string because = "; " + size_text(asked_peak) + " would be needed otherwise";
  if (found.plan.batch.microbatch != wanted) {
    PlanLine& line = plan_line(found.plan, "microbatch");
    line.source = Source::planned;
    line.reason = "the largest that memory_limit allows" + because + "; " + line.reason;
    if (input.couples_samples) {
      remarks.push_back(
          fmt::format("[plan] the microbatch is {} instead of {}, so that a step fits "
                      "memory_limit: batch norm then sees other samples at once, which changes the "
                      "numbers; raise memory.limit, or set batch.microbatch to what you mean",
                      found.plan.batch.microbatch, wanted));
    }
  }
  const std::string few =
      too_few(found.plan.batch, input.dataset->size(), sample_counts(input, found.prediction));
  if (!few.empty()) {
    plan_line(found.plan, "microbatch").reason += "; " + few;
    remarks.push_back("[plan] " + few);
  }
  if (free_recompute && !found.config.memory.recompute.empty()) {
    PlanLine& line = plan_line(found.plan, "recompute");
    line.source = Source::planned;
    const auto& blocks = found.config.memory.recompute;
    line.value = to_text(blocks.size()) + (blocks.size() == 1 ? " block" : " blocks");
    line.reason = fmt::format("so that a step fits memory_limit{}; {}: {}", because, line.reason,
                              join(blocks));
    remarks.push_back(
        "[plan] " + line.value +
        " computed again in each backward, so that a step fits "
        "memory_limit: the same numbers in more time; memory.recompute = [] forbids it");
  }
  explain(found.plan, found.prediction, standing_beside(input, found.plan));
  return {.config = std::move(found.config),
          .plan = std::move(found.plan),
          .prediction = std::move(found.prediction),
          .remarks = std::move(remarks)};
}

std::optional<int64_t> predicted_peak(const Fitted& fitted) {
  const ParallelPlan& parallel = fitted.plan.parallel;
  if (!fitted.prediction && fitted.stages.empty()) return std::nullopt;
  int64_t sum = 0;
  for (int64_t rank = 0; rank < parallel.thread_ranks(); ++rank) {
    const auto place = static_cast<size_t>(rank);
    const auto& devices = parallel.devices;
    if (!devices.empty() && devices[place] != devices.front()) continue;
    if (fitted.prediction) {
      sum += fitted.prediction->peak_bytes;
      continue;
    }
    sum += fitted.stages[static_cast<size_t>(rank / parallel.data_size())].step.peak_bytes;
  }
  if (fitted.stages.empty() || fitted.plan.device.device != "cpu") return sum;
  const bool is_alone = parallel.thread_ranks() == 1;
  return std::max(sum, is_alone ? fitted.stages.front().start_bytes
                                : start_of_threads(fitted.stages, parallel.data_size()));
}

}  // namespace tanren
