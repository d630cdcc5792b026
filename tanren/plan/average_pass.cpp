#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <charconv>
#include <cmath>

namespace tanren {

namespace {

// The first averaged step: a count, a share of the run's steps, or the kind's own default.
int64_t start_of(const std::string& text, Averaging kind, int64_t total_steps) {
  if (text == "auto" && kind == Averaging::ema) return 0;
  const std::string asked = text == "auto" ? "0.75" : text;
  const char* end = asked.data() + asked.size();
  int64_t steps = 0;
  const auto whole = std::from_chars(asked.data(), end, steps);
  if (whole.ec == std::errc() && whole.ptr == end) return steps;
  double share = 0;
  const auto real = std::from_chars(asked.data(), end, share);
  if (real.ec != std::errc() || real.ptr != end || !(share > 0) || !(share < 1)) {
    throw ConfigError("[plan] average.start \"" + asked +
                      "\" is neither a number of steps nor a share of the run in (0, 1)");
  }
  return static_cast<int64_t>(std::floor(share * static_cast<double>(total_steps)));
}

std::string memory_of(const Request& request) {
  return fmt::format("one more copy of the {} trained weights",
                     to_text(request.profile.num_trainable));
}

std::string why(const Request& request, const AveragePlan& average) {
  const std::string often =
      average.every == 1 ? "every step" : fmt::format("every {} steps", to_text(average.every));
  const std::string from =
      average.start == 0 ? "" : fmt::format(" from step {} on", to_text(average.start));
  std::string text = often + from + ", " + memory_of(request);
  if (average.kind == Averaging::ema) {
    text = fmt::format("decay {}{}{}", to_text(average.decay),
                       average.decay_warmup ? ", at first min(decay, (1 + t) / (10 + t)); " : "; ",
                       text);
  } else if (average.learning_rate > 0) {
    text += fmt::format("; learning rate {} from then on", to_text(average.learning_rate));
  }
  return text + (average.evaluate ? "; evaluated and exported" : "; evaluation uses the raw ones");
}

}  // namespace

void plan_average(const Request& request, Plan& plan) {
  const auto& asked = request.config.average;
  auto& average = plan.average;
  if (asked.kind == "none") return;
  average.kind = asked.kind == "ema" ? Averaging::ema : Averaging::swa;
  average.decay = asked.decay;
  average.decay_warmup = asked.decay_warmup;
  average.every = asked.every;
  average.start = start_of(asked.start, average.kind, plan.length.total_steps);
  average.learning_rate = average.kind == Averaging::swa ? asked.learning_rate : 0;
  average.estimate_batches = asked.estimate_batches;
  average.evaluate = asked.evaluate;
  plan.lines.push_back(
      {"average", asked.kind, request.source("average.kind"), why(request, average)});

  const bool coupled = request.profile.couples_samples;
  // The batch norms of a compiled graph or a script cannot be switched to measuring again.
  const bool is_script = request.config.model.kind == "torchscript";
  const bool may_estimate = coupled && !request.profile.graph && !is_script;
  if (is_script && asked.buffers == "estimate") {
    throw ConfigError(
        "[plan] average.buffers \"estimate\": the batch norms of a TorchScript file cannot be told "
        "to "
        "measure anew; take \"average\" or \"copy\"");
  }
  if (asked.buffers == "estimate" ||
      (asked.buffers == "auto" && may_estimate && asked.kind == "swa")) {
    average.buffers = AverageBuffers::estimate;
  } else {
    average.buffers = asked.buffers == "copy" ? AverageBuffers::copy : AverageBuffers::average;
  }
  if (!coupled && asked.buffers != "estimate") return;
  if (!coupled) {
    throw ConfigError(
        "[plan] average.buffers \"estimate\" is for batch norm, and the model has none; drop it");
  }
  const bool estimates = average.buffers == AverageBuffers::estimate;
  const auto batches = average.estimate_batches;
  plan.lines.push_back(
      {"average.buffers",
       estimates                                 ? "estimate"
       : average.buffers == AverageBuffers::copy ? "copy"
                                                 : "average",
       asked.buffers == "auto" ? Source::planned : request.source("average.buffers"),
       estimates ? "batch norm's statistics are measured again with the averaged weights, over " +
                       (batches > 0 ? fmt::format("{} training batches", to_text(batches))
                                    : std::string("all of the training data")) +
                       ", before each evaluation"
       : average.buffers == AverageBuffers::copy ? "batch norm's statistics are the raw model's"
                                                 : "batch norm's statistics are averaged as the "
                                                   "weights are"});
}

}  // namespace tanren
