#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/config/value_text.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>

namespace tanren {

namespace {

// Bytes of a weight as a share of those of its gradient.
double weight_share(const PrecisionPlan& precision) {
  return static_cast<double>(weight_size(precision)) /
         static_cast<double>(gradient_size(precision));
}

int64_t gradient_bytes(const Request& request, const Plan& plan) {
  return request.profile.num_trainable * gradient_size(plan.precision);
}

// Cuts an objective's parameters as the reducer does: from the last to the first, whole ones, the
// first bucket small.
int64_t num_buckets(const Plan& plan, const std::vector<const ParameterFacts*>& parameters) {
  const auto& parallel = plan.parallel;
  int64_t buckets = 0, filled = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    const ParameterFacts& parameter = *parameters[i];
    if (!parameter.trained) continue;
    const int64_t bytes = gradient_size(plan.precision) *
                          std::accumulate(parameter.shape.begin(), parameter.shape.end(),
                                          int64_t{1}, std::multiplies<>());
    const int64_t most = buckets <= 1 ? parallel.first_bucket_bytes : parallel.bucket_bytes;
    const bool joins = buckets > 0 && filled + bytes <= most;
    if (!joins) ++buckets;
    filled = joins ? filled + bytes : bytes;
  }
  return buckets;
}

// Each key of [parallel] that differs from its default, with its value.
std::map<std::string, std::string> changed_values(ParallelOptions options) {
  ParallelOptions plain;
  const auto defaults = values_of(fields_of(plain));
  auto changed = values_of(fields_of(options));
  std::erase_if(changed,
                [&](const auto& entry) { return defaults.at(entry.first) == entry.second; });
  return changed;
}

// Reports options that were asked for and have no effect where no ranks share samples.
void tell_idle(const Request& request, Plan& plan) {
  const std::set<std::string> of_ranks = {"zero",    "compress",        "bucket_mb",
                                          "overlap", "first_bucket_mb", "buffers"};
  const bool in_stages = plan.parallel.pipeline > 1;
  const std::string why = in_stages
                              ? "does nothing: each stage has one rank (more share the samples)"
                              : "does nothing: the run has one rank (tanren launch -n starts more)";
  for (const auto& [key, value] : changed_values(request.config.parallel)) {
    if (key == "ranks" || key == "replicas" || key == "devices") continue;  // the line of the ranks
    if (in_stages && of_ranks.count(key) == 0) continue;
    plan.lines.push_back({"parallel." + key, value, Source::asked, why});
  }
  plan.parallel.zero = 0;
  plan.parallel.compress = Compress::none;
}

void check_shards(const Request& request, const Plan& plan) {
  if (plan.parallel.zero == 0) return;
  for (const ObjectivePlan& objective : plan.objectives) {
    const OptimizerKind* kind = optimizer_kind(objective.optimizer.kind);
    if (kind == nullptr || kind->whole.empty()) continue;
    throw ConfigError(
        fmt::format("[plan] parallel.zero = {} gives each rank a range of elements to update, and "
                    "{} \"{}\" needs whole {}; set parallel.zero = 0, or another optimizer",
                    to_text(plan.parallel.zero), request.key_of(objective, "optimizer.kind"),
                    kind->name, kind->whole));
  }
}

void tell_buckets(const Request& request, Plan& plan) {
  const auto& parallel = plan.parallel;
  const auto bytes = static_cast<double>(gradient_bytes(request, plan));
  int64_t buckets = 0;
  for (size_t i = 0; i < plan.objectives.size(); ++i) {
    buckets += num_buckets(plan, parameters_of(request, i));
  }
  plan.lines.push_back(
      {"buckets",
       size_text(parallel.first_bucket_bytes) + ", then " + size_text(parallel.bucket_bytes),
       request.config.parallel.bucket_mb == ParallelOptions().bucket_mb
           ? request.source("parallel.first_bucket_mb")
           : request.source("parallel.bucket_mb"),
       fmt::format("{}{}{} of gradients{}", to_text(buckets),
                   buckets == 1 ? " for " : " of whole parameters for ", bytes_text(bytes),
                   parallel.overlap ? ", each summed as soon as backward has filled it" : "")});
  if (parallel.overlap) return;
  std::string reason = "all buckets are summed after backward";
  const bool asked = !request.config.parallel.overlap;
  if (parallel.buffers == RankBuffers::synchronised) {
    reason += ": in it go batch norm's sums (parallel.buffers), in one order on all ranks";
  } else if (!asked) {
    reason += ": with parallel.zero = 2 it would wait for that of the other replica on its device";
  }
  plan.lines.push_back(
      {"overlap", "false", asked ? request.source("parallel.overlap") : Source::planned, reason});
}

void tell_wire(const Request& request, Plan& plan) {
  const auto& parallel = plan.parallel;
  const auto ranks = static_cast<double>(parallel.data_size());
  const auto whole = static_cast<double>(gradient_bytes(request, plan));
  const bool rounded = parallel.compress != Compress::none;
  const bool is_memory = parallel.backend == Backend::threads && parallel.devices.empty();
  if (rounded) {
    plan.lines.push_back(
        {"compress", name(parallel.compress), request.source("parallel.compress"),
         is_memory
             ? "gradients are rounded before they are summed; between threads it saves nothing"
             : "gradients are rounded before they are summed: half of " + bytes_text(whole)});
  }
  if (is_memory) return;
  const double weights = parallel.zero == 0 ? whole : whole * weight_share(plan.precision);
  const double sent = (ranks - 1) / ranks * (whole + weights) / (rounded ? 2 : 1);
  const std::string share =
      fmt::format("{}/{}", to_text(parallel.data_size() - 1), to_text(parallel.data_size()));
  plan.lines.push_back(
      {"wire", bytes_text(sent) + " a step", Source::planned,
       (parallel.pipeline > 1 ? "sent by the stages of a replica together: "
                              : "sent by each rank: ") +
           (parallel.zero > 0 ? share + " of the gradients, each rank's part summed, and " + share +
                                    " of the weights, gathered"
                              : "2 × " + share + " of the gradients, in a ring") +
           "; once a step, however many microsteps"});
}

void tell_zero(const Request& request, Plan& plan) {
  const auto& parallel = plan.parallel;
  if (parallel.zero == 0) return;
  const auto ranks = static_cast<double>(parallel.data_size());
  const std::string keeps =
      parallel.pipeline > 1 ? "the stages of a replica keep together " : "each rank keeps ";
  const auto state = static_cast<double>(optimizer_bytes(request, plan));
  const auto gradients = static_cast<double>(gradient_bytes(request, plan));
  plan.lines.push_back(
      {"zero", to_text(parallel.zero), request.source("parallel.zero"),
       "of " + bytes_text(state) + " of optimizer state " + keeps + bytes_text(state / ranks) +
           (parallel.zero > 1 ? ", and of " + bytes_text(gradients) + " of summed gradients " +
                                    bytes_text(gradients / ranks) +
                                    (plan.batch.accumulation_steps > 1
                                         ? "; until the last microstep all are there"
                                         : " beside the buckets on their way")
                              : "")});
}

void tell_buffers(const Request& request, Plan& plan) {
  const auto& parallel = plan.parallel;
  const bool coupled = request.profile.couples_samples;
  const bool asked_in_vain = request.config.parallel.buffers == "synchronised" &&
                             parallel.buffers != RankBuffers::synchronised;
  if (!coupled && parallel.buffers == RankBuffers::mean && !asked_in_vain) return;
  const std::string become = parallel.buffers == RankBuffers::mean
                                 ? "the mean over all ranks' samples"
                                 : "the first rank's that has samples";
  std::string reason = "running statistics become " + become + "; the model has no batch norm";
  if (parallel.buffers == RankBuffers::synchronised) {
    reason = fmt::format(
        "batch norm sees the samples of all ranks in a microstep, so that the numbers are those of "
        "one rank with microbatches of {}; its statistics travel in each, forward and backward",
        to_text(std::min(parallel.world_size * plan.batch.microbatch, plan.batch.global_batch)));
  } else if (coupled) {
    reason =
        "batch norm sees each rank's own share, so that the numbers equal one rank's only at the "
        "same split (\"synchronised\": over all ranks); running statistics become " +
        become;
  }
  plan.lines.push_back({"rank_buffers", name(parallel.buffers),
                        asked_in_vain ? Source::planned : request.source("parallel.buffers"),
                        reason});
}

void tell_agreement(const Request& request, Plan& plan) {
  const auto& parallel = plan.parallel;
  if (parallel.data_size() > 1) tell_buffers(request, plan);
  const int64_t every = parallel.check_every;
  plan.lines.push_back(
      {"check_every", to_text(every), request.source("parallel.check_every"),
       every == 0
           ? "weights are compared over ranks at the start alone"
           : "applied steps between comparisons of the weights over ranks, to the last bit"});
  if (parallel.timeout_seconds == ParallelOptions().timeout) return;
  plan.lines.push_back({"timeout", fmt::format("{} s", to_text(parallel.timeout_seconds)),
                        request.source("parallel.timeout"),
                        "a rank that waits longer ends, with the names of those that are missing"});
}

}  // namespace

void plan_reduction(const Request& request, Plan& plan) {
  check_shards(request, plan);
  if (plan.parallel.data_size() == 1) {
    tell_idle(request, plan);
  } else {
    tell_buckets(request, plan);
    tell_wire(request, plan);
    tell_zero(request, plan);
  }
  if (plan.parallel.world_size > 1) tell_agreement(request, plan);
}

}  // namespace tanren
