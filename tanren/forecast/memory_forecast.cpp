#include "tanren/forecast/memory_forecast.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/memory/gauge.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

namespace tanren {

namespace {

// The planned microbatch, and powers of two around it, from `least` to `per_rank`.
std::vector<int64_t> microbatches_around(const BatchPlan& batch, int64_t least) {
  std::vector<int64_t> sizes = {std::min(least, batch.per_rank), batch.microbatch};
  for (int64_t size = 2; size <= std::min(4 * batch.microbatch, batch.per_rank); size *= 2) {
    if (size > least) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  constexpr size_t kMost = 8;
  if (sizes.size() > kMost) sizes.erase(sizes.begin(), sizes.end() - kMost);
  return sizes;
}

std::vector<int64_t> lengths_around(int64_t length) {
  std::vector<int64_t> lengths;
  for (const int64_t part : {length / 4, length / 2, length, 2 * length}) {
    if (part >= 1) lengths.push_back(part);
  }
  if (lengths.empty()) lengths.push_back(0);
  return lengths;
}

// None if the model does not accept the shape: more positions than it has, one sample in batch
// norm, … A user's own model reports this with torch's errors.
std::optional<int64_t> peak_of(const StepPredictor& predictor, const Plan& plan, int64_t length) {
  try {
    return predictor.step(plan, length).peak_bytes;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

class Alternatives {
 public:
  Alternatives(const FitInput& input, const Fitted& fitted) : input_(input), fitted_(fitted) {}

  // Adds the alternative if it needs less memory.
  void consider(const RunConfig& config, const std::string& what, const std::string& cost) {
    consider(config, what, [&](const MemoryPrediction&) { return cost; });
  }
  void consider(const RunConfig& config, const std::string& what,
                const std::function<std::string(const MemoryPrediction&)>& cost) {
    try {
      const Tried tried = try_config(input_, config);
      if (tried.prediction.peak_bytes >= fitted_.prediction->peak_bytes) return;
      found_.push_back({what, tried.prediction.peak_bytes, cost(tried.prediction)});
    } catch (const std::exception&) {  // it does not go with the rest of the config, or the model
    }
  }

  std::vector<MemoryForecast::Alternative> found() && {
    std::sort(found_.begin(), found_.end(),
              [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
    return std::move(found_);
  }

 private:
  const FitInput& input_;
  const Fitted& fitted_;
  std::vector<MemoryForecast::Alternative> found_;
};

std::vector<MemoryForecast::Alternative> alternatives_of(const FitInput& input,
                                                         const Fitted& fitted) {
  Alternatives all(input, fitted);
  const Plan& plan = fitted.plan;
  const MemoryPrediction& now = *fitted.prediction;
  RunConfig config = fitted.config;
  if (plan.memory.recompute.empty()) {
    config.memory.recompute = {"*"};
    all.consider(config, "memory.recompute = [\"*\"]", [&](const MemoryPrediction& recomputed) {
      if (!recomputed.is_dry) return std::string("the same numbers in more time");
      // Backward costs two forwards.
      const auto usual = static_cast<double>(std::max<int64_t>(3 * now.multiply_adds, 1));
      const auto more = static_cast<double>(recomputed.multiply_adds - now.multiply_adds);
      return fmt::format("{} % more multiply-adds, the same numbers",
                         std::lround(100 * more / usual));
    });
  }
  config = fitted.config;
  const int64_t half = plan.batch.microbatch / 2;
  const int64_t fewer = std::max(half - half % input.counts.multiple, least_samples(input, now));
  if (fewer < plan.batch.microbatch) {
    config.batch.microbatch = fewer;
    all.consider(config, fmt::format("batch.microbatch = {}", config.batch.microbatch),
                 input.couples_samples ? "batch norm sees fewer samples at once"
                                       : "more microsteps, the same numbers");
  }
  config = fitted.config;
  if (packs_state(config.optimizer) &&
      std::all_of(plan.objectives.begin(), plan.objectives.end(),
                  [](const ObjectivePlan& own) { return own.optimizer.state == "fp32"; })) {
    set_state(config, "8bit");
    all.consider(config, "optimizer.state = \"8bit\"", "moments rounded to 256 values");
    set_state(config, "bf16");
    all.consider(config, "optimizer.state = \"bf16\"", "moments rounded to 8 bits of mantissa");
  }
  config = fitted.config;
  if (plan.precision.mode == Mode::fp32 && plan.precision.level.empty()) {
    config.precision.mode = "bf16";
    all.consider(config, "precision.mode = \"bf16\"", "products in bf16");
  }
  return std::move(all).found();
}

// The reason that fit_memory gives for having no prediction.
std::string unknown_because(const Plan& plan) {
  const auto found = std::find_if(plan.lines.begin(), plan.lines.end(), [](const PlanLine& line) {
    return line.key == "predicted_peak";
  });
  return found == plan.lines.end() ? "" : found->reason;
}

bool has_unknown(const MemoryForecast& forecast) {
  return std::any_of(forecast.rows.begin(), forecast.rows.end(), [](const auto& row) {
    return std::find(row.peaks.begin(), row.peaks.end(), std::nullopt) != row.peaks.end();
  });
}

std::string stages_text(const std::vector<StagePrediction>& stages) {
  std::string text = fmt::format("predicted peaks of a step (by {}):\n", stages.front().step.how);
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto& [step, whole, start] = stages[i];
    text += fmt::format("  stage {}  {}: {}; before the first step {}, at the start at most {}\n",
                        i + 1, size_text(step.peak_bytes), breakdown(step),
                        size_text(step.before_bytes), size_text(start));
  }
  return text;
}

nlohmann::ordered_json kinds_of(const MemoryPrediction& prediction) {
  nlohmann::ordered_json json;
  for (size_t i = 0; i < kNumMemoryKinds; ++i) {
    json[std::string(kMemoryKindNames[i])] = prediction.at_peak[i];
  }
  return json;
}

}  // namespace

MemoryForecast memory_forecast(const FitInput& input, const Fitted& fitted) {
  MemoryForecast forecast;
  const Plan& plan = fitted.plan;
  const StepPredictor predictor = predictor_of(input, fitted.config);
  forecast.microbatch = plan.batch.microbatch;
  forecast.length = predictor.length();
  forecast.room_bytes = room_for_step(plan, standing_beside(input, plan));
  if (plan.parallel.pipeline > 1) {
    forecast.stages = fitted.stages;
    if (fitted.stages.empty()) forecast.unknown = unknown_because(plan);
    return forecast;
  }
  if (!fitted.prediction) {
    forecast.unknown = unknown_because(plan);
    return forecast;
  }
  forecast.planned = *fitted.prediction;
  // Real steps tell nothing of other lengths.
  forecast.lengths = {0};
  if (forecast.planned.is_dry) forecast.lengths = lengths_around(forecast.length);
  const int64_t least = least_samples(input, forecast.planned);
  for (const int64_t microbatch : microbatches_around(plan.batch, least)) {
    RunConfig config = fitted.config;
    config.batch.microbatch = microbatch;
    const Plan other = input.plan(config);
    MemoryForecast::Row row{microbatch, {}};
    for (const int64_t length : forecast.lengths) {
      row.peaks.push_back(peak_of(predictor, other, length));
    }
    forecast.rows.push_back(std::move(row));
  }
  forecast.alternatives = alternatives_of(input, fitted);
  if (input.has_evaluation) {
    try {
      forecast.evaluation_bytes = predictor.evaluation_peak(plan, plan.evaluate.batch);
    } catch (...) {
      forecast.evaluation_unknown = line_of_current();
    }
  }
  return forecast;
}

std::string to_text(const MemoryForecast& forecast) {
  if (!forecast.unknown.empty())
    return "predicted peak of a step: unknown: " + forecast.unknown + "\n";
  if (!forecast.stages.empty()) return stages_text(forecast.stages);
  const MemoryPrediction& now = forecast.planned;
  std::string text =
      fmt::format("predicted peak of a step (by {}): {}, of it before the first step {}\n", now.how,
                  size_text(now.peak_bytes), size_text(now.before_bytes));
  for (const auto& [kind, bytes] : kinds_by_size(now.at_peak)) {
    text += "  " + padded(kind, 12) + " " + size_text(bytes) + "\n";
  }
  if (forecast.evaluation_bytes > 0) {
    text += "predicted peak of an evaluation: " + size_text(forecast.evaluation_bytes) + "\n";
  } else if (!forecast.evaluation_unknown.empty()) {
    text += "predicted peak of an evaluation: unknown: " + forecast.evaluation_unknown + "\n";
  }
  if (!forecast.rows.empty()) {
    const bool has_lengths = forecast.lengths != std::vector<int64_t>{0};
    text += "\npredicted peaks by samples at once (batch.microbatch)";
    text += has_lengths ? " and tokens of each:\n" : ":\n";
    constexpr int64_t kWidth = 11;
    if (has_lengths) {
      text += padded("", kWidth);
      for (const int64_t length : forecast.lengths) {
        const std::string cell = to_text(length);
        text += length == forecast.lengths.back() ? cell : padded(cell, kWidth);
      }
      text += "\n";
    }
    for (const auto& row : forecast.rows) {
      text += padded(fmt::format("  {}", row.microbatch), kWidth);
      for (size_t i = 0; i < row.peaks.size(); ++i) {
        const bool planned = row.microbatch == forecast.microbatch &&
                             (!has_lengths || forecast.lengths[i] == forecast.length);
        std::string cell = row.peaks[i] ? size_text(*row.peaks[i]) : "-";
        if (planned) cell += " *";
        if (row.peaks[i] && !fits(*row.peaks[i], forecast.room_bytes)) cell += " !";
        text += i + 1 < row.peaks.size() ? padded(cell, kWidth) : cell;
      }
      text += "\n";
    }
    text += "* as planned";
    if (forecast.room_bytes > 0) {
      text += "; ! more than the " + size_text(forecast.room_bytes) + " that memory_limit leaves";
    }
    text += has_unknown(forecast) ? "; - the model does not take it\n" : "\n";
  }
  if (!forecast.alternatives.empty()) {
    text += "\nwhat would need less:\n";
    int64_t width = 0;
    for (const auto& other : forecast.alternatives) {
      width = std::max(width, display_width(other.what));
    }
    for (const auto& other : forecast.alternatives) {
      text += fmt::format("  {}  {} ({} less): {}\n", padded(other.what, width),
                          size_text(other.peak_bytes), size_text(now.peak_bytes - other.peak_bytes),
                          other.cost);
    }
  }
  return text;
}

std::string to_json(const MemoryForecast& forecast) {
  nlohmann::ordered_json json;
  if (!forecast.stages.empty()) {
    for (const StagePrediction& stage : forecast.stages) {
      json["stages"].push_back({{"peak_bytes", stage.step.peak_bytes},
                                {"before_bytes", stage.step.before_bytes},
                                {"start_bytes", stage.start_bytes},
                                {"at_peak", kinds_of(stage.step)}});
    }
    json["by"] = forecast.stages.front().step.how;
    json["room_bytes"] = forecast.room_bytes;
    return json_text(json, 2);
  }
  const MemoryPrediction& now = forecast.planned;
  json["peak_bytes"] = now.peak_bytes;
  json["before_bytes"] = now.before_bytes;
  json["by"] = now.how;
  json["at_peak"] = kinds_of(now);
  json["evaluation_bytes"] = forecast.evaluation_bytes;
  if (!forecast.unknown.empty()) json["unknown"] = forecast.unknown;
  if (!forecast.evaluation_unknown.empty())
    json["evaluation_unknown"] = forecast.evaluation_unknown;
  json["room_bytes"] = forecast.room_bytes;
  json["table"] = nlohmann::ordered_json::array();
  for (const auto& row : forecast.rows) {
    for (size_t i = 0; i < row.peaks.size(); ++i) {
      nlohmann::ordered_json cell = {{"microbatch", row.microbatch}};
      if (forecast.lengths[i] > 0) cell["length"] = forecast.lengths[i];
      cell["peak_bytes"] = row.peaks[i] ? nlohmann::ordered_json(*row.peaks[i]) : nullptr;
      json["table"].push_back(cell);
    }
  }
  json["alternatives"] = nlohmann::ordered_json::array();
  for (const auto& other : forecast.alternatives) {
    json["alternatives"].push_back(
        {{"what", other.what}, {"peak_bytes", other.peak_bytes}, {"cost", other.cost}});
  }
  return json_text(json, 2);
}

}  // namespace tanren
