// The planning passes. make_plan calls them in their order. Each reads the request and the parts
// filled before it, and fills its own.
#pragma once

#include "tanren/plan/plan.h"

#include <string>
#include <vector>

namespace tanren {

struct Request {
  const RunConfig& config;
  const Machine& machine;
  const ModelProfile& profile;

  // "asked" if the file or --set gave the key, else the default.
  Source source(const std::string& key) const {
    return config.asked.count(key) > 0 ? Source::asked : Source::by_default;
  }
  // The full name of an objective's key, such as "optimizer.kind": with objectives.NAME before it
  // if it was given there, else the run's.
  std::string key_of(const ObjectivePlan& objective, const std::string& key) const {
    const std::string own = "objectives." + objective.name + "." + key;
    return config.asked.count(own) > 0 ? own : key;
  }
};

void plan_device(const Request& request, Plan& plan);
// The number of ranks and their backend; after plan_device. ConfigError if the launcher, the
// devices and [parallel] contradict one another.
void plan_ranks(const Request& request, Plan& plan);
// Threads of one rank; after plan_ranks.
void plan_threads(const Request& request, Plan& plan);
void plan_memory(const Request& request, Plan& plan);
void plan_data(const Request& request, Plan& plan);
void plan_batch(const Request& request, Plan& plan);
void plan_length(const Request& request, Plan& plan);
// Each objective's turns, loss, optimizer, schedule and clip; after plan_length. ConfigError for a
// name, a term or a turn that does not fit the task.
void plan_objectives(const Request& request, Plan& plan);
// The parameters that the objective of that index may change.
std::vector<const ParameterFacts*> parameters_of(const Request& request, size_t objective);
// Which parameters are frozen, and until which step; after plan_length.
void plan_freeze(const Request& request, Plan& plan);
// The line about a model that is one compiled graph; after plan_freeze. ConfigError for a setting
// that the graph does not support.
void plan_graph(const Request& request, Plan& plan);
void plan_precision(const Request& request, Plan& plan);
// Bytes of an element of a weight, and of its gradient; after plan_precision. Batch norms may keep
// 4.
int64_t weight_size(const PrecisionPlan& precision);
int64_t gradient_size(const PrecisionPlan& precision);
bool has_convolutions(const ModelProfile& profile);  // of images
// How images and the weights of convolutions lie in memory; after plan_precision. ConfigError if
// the model has no convolutions and channels_last is asked for.
void plan_memory_format(const Request& request, Plan& plan);
// The stages of the model, and the schedule of their window; after plan_memory and plan_average.
// ConfigError for a cut that the model does not have, and for several objectives. Without the
// model's blocks it decides nothing.
void plan_pipeline(const Request& request, Plan& plan);
// Drops a default metric that does not fit the task; ConfigError for one that was asked for.
void plan_evaluation(const Request& request, Plan& plan);
// The lines about each objective's optimizer; after plan_objectives.
void plan_optimizer(const Request& request, Plan& plan);
// Bytes of optimizer state for the parameters that are trained from the start; after
// plan_optimizer.
int64_t optimizer_bytes(const Request& request, const Plan& plan);
// Buckets, bytes on the wire, what is sharded; after plan_optimizer. ConfigError for an optimizer
// that cannot be sharded.
void plan_reduction(const Request& request, Plan& plan);
// After plan_evaluation: the direction of each metric that reduce_on_plateau reads.
void plan_schedule(const Request& request, Plan& plan);
void plan_determinism(const Request& request, Plan& plan);
void plan_average(const Request& request, Plan& plan);
// After plan_precision. ConfigError for a pattern without a match, for too few samples of training
// data, and for a mode other than fp32 and bf16.
void plan_quantize(const Request& request, Plan& plan);

}  // namespace tanren
