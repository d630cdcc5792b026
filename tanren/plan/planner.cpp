#include "tanren/plan/planner.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/plan/passes.h"

namespace tanren {

namespace {

// If no launcher started processes, a config with stages in processes is planned as if one process
// were launched for each stage.
Machine as_launched(Machine machine, const ParallelOptions& parallel) {
  const bool has_stages = parallel.pipeline > 1 && parallel.ranks == "processes";
  if (!has_stages || machine.world_size > 1) return machine;
  machine.world_size = machine.local_ranks = parallel.pipeline;
  return machine;
}

}  // namespace

Plan make_plan(const RunConfig& config, const Machine& machine, const ModelProfile& profile) {
  const Machine launched = as_launched(machine, config.parallel);
  Plan plan;
  plan.run = config.run;
  plan.model = config.model;
  plan.data = config.data;
  plan.guard = config.guard;
  plan.evaluate = config.evaluate;
  plan.early_stop = config.early_stop;
  plan.checkpoint = config.checkpoint;
  plan.metrics = config.metrics;
  plan.generate = config.generate;
  const Request request{config, launched, profile};
  plan.lines.push_back(
      {"model", config.model.kind, Source::asked,
       fmt::format("{} of {} parameters are trained", to_text(profile.num_trainable),
                   to_text(profile.num_parameters))});
  if (!config.model.init_from.empty() || !config.model.from_hf.empty()) {
    const bool is_file = config.model.from_hf.empty();
    plan.lines.push_back(
        {is_file ? "init_from" : "from_hf", "", Source::asked, profile.initialised});
  }
  plan_device(request, plan);
  plan_ranks(request, plan);
  plan_threads(request, plan);
  plan_data(request, plan);
  plan_batch(request, plan);
  plan_length(request, plan);
  plan_objectives(request, plan);
  plan_freeze(request, plan);
  plan_graph(request, plan);
  plan_precision(request, plan);
  plan_optimizer(request, plan);
  plan_reduction(request, plan);
  plan_determinism(request, plan);
  plan_memory(request, plan);
  plan_memory_format(request, plan);
  plan_average(request, plan);
  plan_quantize(request, plan);
  plan_pipeline(request, plan);
  plan_evaluation(request, plan);
  plan_schedule(request, plan);
  return plan;
}

Plan replica_plan(Plan plan, int64_t rank) {
  auto& parallel = plan.parallel;
  if (rank < 0 || rank >= parallel.thread_ranks()) {
    throw ConfigError(fmt::format("[plan] there is no rank {} of {} threads; count them from 0",
                                  to_text(rank), to_text(parallel.thread_ranks())));
  }
  parallel.rank = parallel.local_rank = rank;
  if (!parallel.devices.empty()) {
    plan.device.device = device_name(read_device_name(plan.device.device)->kind,
                                     parallel.devices.at(static_cast<size_t>(rank)));
  }
  return plan;
}

ParallelPlan plan_connection(const RunConfig& config, const Machine& machine) {
  Plan plan;
  plan.run = config.run;
  const ModelProfile unknown;
  const Request request{config, machine, unknown};
  plan_device(request, plan);
  plan_ranks(request, plan);
  return plan.parallel;
}

MemoryPlan plan_process_memory(const RunConfig& config, const Machine& machine) {
  Plan plan;
  plan.run = config.run;
  plan.parallel.local_ranks = machine.local_ranks;
  const ModelProfile unknown;
  const Request request{config, machine, unknown};
  plan_device(request, plan);
  plan_memory(request, plan);
  return plan.memory;
}

}  // namespace tanren
