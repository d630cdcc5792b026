#include "tanren/anatomy/advice.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/config/validate.h"
#include "tanren/data/collated.h"
#include "tanren/forecast/predict.h"
#include "tanren/memory/gauge.h"
#include "tanren/model/couples_samples.h"
#include "tanren/plan/probe_machine.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace tanren {

namespace {

constexpr int64_t kFewestSteps = 3, kMostSteps = 15;
constexpr double kSecondsOfSteps = 0.5;     // short steps are noisy: take more of them
constexpr double kHelps = 0.03;             // smaller gains in time or memory are no advice
constexpr double kShareOfMemory = 0.7;      // that two rehearsals may take together
constexpr double kNoticeableLoader = 0.01;  // share of a step
constexpr double kLongStep = 1;             // seconds: for longer steps the variant is logged
constexpr size_t kMostAdvice = 10;

struct Variant {
  std::string change;
  std::function<void(RunConfig&)> apply;
  std::string note;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool has_images(const Rehearsal& run) {
  const Batch sample = collated(run.dataset(), {0}).batch;
  const at::Tensor* inputs = sample.fields.find("inputs");
  return inputs != nullptr && inputs->dim() == 4 && inputs->is_floating_point();
}

void add_memory_variants(const Rehearsal& run, std::vector<Variant>& variants) {
  const Plan& plan = run.plan();
  if (plan.memory.recompute.empty()) {
    variants.push_back({"memory.recompute = [\"*\"]",
                        [](RunConfig& c) { c.memory.recompute = {"*"}; }, "the same numbers"});
  }
  const auto packs_more = [](const ObjectivePlan& own) {
    return packs_state(own.optimizer) && own.optimizer.state == "fp32";
  };
  if (packs_state(run.config().optimizer) &&
      std::any_of(plan.objectives.begin(), plan.objectives.end(), packs_more)) {
    variants.push_back({"optimizer.state = \"8bit\"", [](RunConfig& c) { set_state(c, "8bit"); },
                        "moments round to 8 bits"});
  }
}

void add_batch_variants(const Rehearsal& run, std::vector<Variant>& variants) {
  const BatchPlan& batch = run.plan().batch;
  const std::string note = couples_samples(run.state().task)
                               ? "batch norm then sees other groups of samples"
                               : "the same update";
  const auto add = [&](int64_t microbatch) {
    variants.push_back({fmt::format("batch.microbatch = {}", microbatch),
                        [=](RunConfig& c) {
                          c.batch.microbatch = microbatch;
                          c.asked.insert("batch.microbatch");
                        },
                        note});
  };
  if (batch.microbatch < batch.per_rank) {
    add(std::min(2 * batch.microbatch, batch.per_rank));
  }
  if (batch.microbatch > 1) add((batch.microbatch + 1) / 2);
}

void add_host_variants(const Plan& plan, double loader_share, std::vector<Variant>& variants) {
  if (loader_share > kNoticeableLoader) {
    const int64_t workers = std::max<int64_t>(1, 2 * plan.data.workers);
    variants.push_back({fmt::format("data.workers = {}", workers),
                        [=](RunConfig& c) { c.data.workers = workers; }, "the same numbers"});
  }
  if (plan.device.device != "cpu") return;
  const auto add = [&](int64_t threads) {
    variants.push_back({fmt::format("run.threads = {}", threads),
                        [=](RunConfig& c) { c.run.threads = threads; }, ""});
  };
  const int64_t cores = probe_machine().cores;
  if (plan.device.threads < cores) add(cores);
  if (plan.device.threads > 1) add(plan.device.threads / 2);
}

std::vector<Variant> variants_of(const BaseRun& base) {
  const Rehearsal& run = *base.rehearsal;
  const Plan& plan = run.plan();
  std::vector<Variant> variants;
  if (plan.precision.mode == Mode::fp32 && plan.precision.level.empty()) {
    variants.push_back({"precision.mode = \"bf16\"",
                        [](RunConfig& c) { c.precision.mode = "bf16"; },
                        "products round to 8 bits; weights and state stay fp32"});
  }
  add_batch_variants(run, variants);
  add_memory_variants(run, variants);
  if (has_images(run)) {
    const std::string other = plan.memory.channels_last ? "contiguous" : "channels_last";
    variants.push_back({"model.memory_format = \"" + other + "\"",
                        [=](RunConfig& c) { c.model.memory_format = other; }, ""});
  }
  add_host_variants(plan, base.loader_share, variants);
  return variants;
}

// The peak memory of a step of `run`, above `before`; predicted if no gauge counts on the device.
std::pair<int64_t, bool> peak_of(Rehearsal& run, int64_t before) {
  MemoryGauge gauge(run.parts().device);
  if (gauge.counts()) {
    gauge.restart();
    measured_step(run);
    return {gauge.peak() - before, true};
  }
  measured_step(run);
  const auto make = [&] { return run.make_task(); };
  return {StepPredictor(make, run.dataset(), run.probes()).step(run.plan()).peak_bytes, false};
}

// Measures the variant in turns with the run itself. Throws what the variant throws.
std::optional<Advice> measure(const Variant& variant, const RunConfig& asked,
                              const Registry& registry, BaseRun& base, at::Device device) {
  RunConfig config = asked;
  variant.apply(config);
  if (!validate(config, registry.known()).empty()) return std::nullopt;
  Datasets datasets = open_datasets(config.data, registry.datasets);
  const int64_t before = MemoryGauge(device).live();
  Rehearsal run(config, registry, std::move(datasets));
  const int64_t planned = run.plan().batch.microbatch;
  measured_step(run);
  Advice advice{.change = variant.change, .note = variant.note};
  std::tie(advice.peak, advice.peak_measured) = peak_of(run, before);
  advice.alternating = base.rehearsal != nullptr;
  const double step = median(base.seconds);
  const auto steps =
      std::clamp(static_cast<int64_t>(std::ceil(kSecondsOfSteps / step)), kFewestSteps, kMostSteps);
  std::vector<double> seconds, base_seconds;
  for (int64_t i = 0; i < steps; ++i) {
    if (base.rehearsal) base_seconds.push_back(measured_step(*base.rehearsal).seconds);
    seconds.push_back(measured_step(run).seconds);
  }
  if (run.parts().recovery->size(planned) < planned) return std::nullopt;  // it did not fit
  if (!base.rehearsal) base_seconds = base.seconds;
  advice.steps = steps;
  advice.seconds = median(seconds);
  advice.base_seconds = median(base_seconds);
  advice.time_gain = 1 - advice.seconds / advice.base_seconds;
  advice.base_peak = base.peak;
  advice.bytes_saved = base.peak - advice.peak;
  return advice;
}

double memory_gain(const Advice& advice) {
  return advice.base_peak > 0
             ? static_cast<double>(advice.bytes_saved) / static_cast<double>(advice.base_peak)
             : 0;
}

double gain(const Advice& advice) { return std::max(advice.time_gain, memory_gain(advice)); }

}  // namespace

StepReport measured_step(Rehearsal& run, OperatorRecorder* recorder) {
  StepReport report = run.step(recorder);
  for (const auto& objective : report.objectives) {
    if (objective.verdict.action != Action::halt) continue;
    throw NonFiniteError("[anatomy] the guard stops this run in its first steps: " +
                         std::string(name(objective.verdict.cause)) +
                         "; lower the learning rate, or look at the data");
  }
  return report;
}

AdviceFound advise(const RunConfig& config, const Registry& registry, BaseRun& base) {
  AdviceFound found;
  const at::Device device = base.rehearsal->parts().device;
  const std::vector<Variant> variants = variants_of(base);
  const int64_t limit = MemoryGauge(device).limit();
  const auto room =
      kShareOfMemory * static_cast<double>(limit > 0 ? limit : probe_machine().memory_bytes);
  if (2 * static_cast<double>(base.peak) > room) base.rehearsal.reset();
  for (const Variant& variant : variants) {
    if (median(base.seconds) > kLongStep) log("[anatomy] trying " + variant.change);
    try {
      const auto advice = measure(variant, config, registry, base, device);
      if (!advice) continue;
      found.tried.push_back(variant.change);
      if (gain(*advice) > kHelps) found.advice.push_back(*advice);
    } catch (const std::exception&) {
      found.tried.push_back(variant.change + " (fails)");
    }
  }
  std::stable_sort(found.advice.begin(), found.advice.end(),
                   [](const Advice& a, const Advice& b) { return gain(a) > gain(b); });
  if (found.advice.size() > kMostAdvice) found.advice.resize(kMostAdvice);
  return found;
}

}  // namespace tanren
