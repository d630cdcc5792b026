#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

std::string percent_text(double share) {
  return fmt::format("{} %", to_text(static_cast<int64_t>(std::lround(100 * share))));
}

void refuse_several_objectives(const Request& request) {
  const auto& objectives = request.profile.objectives;
  if (objectives.size() <= 1) return;
  std::vector<std::string> names;
  for (const ObjectiveFacts& objective : objectives) names.push_back(objective.name);
  throw ConfigError(
      fmt::format("[plan] parallel.pipeline is {}, and the task has the objectives {}: a run in "
                  "stages has one; drop parallel.pipeline",
                  to_text(request.config.parallel.pipeline), join(names)));
}

// Pictures, too, are made by a forward of the whole model.
void refuse_pictures(const Request& request) {
  if (request.config.metrics.images_every == 0) return;
  throw ConfigError(
      "[plan] metrics.images_every makes pictures on one rank, and with parallel.pipeline no rank "
      "has the whole model; set it to 0");
}

void refuse_estimates(const Plan& plan) {
  const AveragePlan& average = plan.average;
  if (average.kind == Averaging::none || average.buffers != AverageBuffers::estimate) return;
  throw ConfigError(
      "[plan] average.buffers is \"estimate\", which runs the whole model, and with "
      "parallel.pipeline no rank has it; set average.buffers = \"average\" or \"copy\"");
}

// The ranks that share the limit, if there are so many stages.
int64_t sharers_of(const Plan& plan, int64_t stages) {
  const ParallelPlan& parallel = plan.parallel;
  const int64_t ranks = parallel.devices.empty() ? parallel.thread_ranks() : 1;
  return ranks == 1 ? 1 : ranks / parallel.pipeline * stages;
}

// For so many stages of the planned microbatch.
CutOptions cut_options(const Plan& plan, int64_t stages) {
  const int64_t microbatches = plan.batch.accumulation_steps;
  CutOptions options{.stages = stages, .samples = plan.batch.microbatch};
  for (int64_t stage = 0; stage < stages; ++stage) {
    options.in_flight.push_back(
        most_in_flight(pipeline_actions(plan.parallel.schedule, stage, stages, microbatches)));
  }
  if (plan.memory.limit_bytes > 0) {
    const int64_t left = plan.memory.limit_bytes - plan.memory.reserve_bytes;
    options.limit_bytes = std::max<int64_t>(left / sharers_of(plan, stages), 1);
  }
  return options;
}

// The smallest memory.limit that leaves each stage so many bytes.
std::string limit_for(int64_t bytes, const Plan& plan) {
  const int64_t needs = sharers_of(plan, plan.parallel.pipeline) * bytes;
  // The reserve is a sixteenth of the limit, at most 16 MiB.
  const int64_t reserve = std::min(needs / 15, int64_t{16} << 20);
  const int64_t mebibytes = (needs + reserve + (1 << 20) - 1) >> 20;
  return fmt::format("memory.limit = \"{}MiB\"", to_text(mebibytes));
}

// What would fit, as clauses: another cut, or the least number of stages.
std::string stages_that_fit(const ModelBlocks& model, const CutOptions& options, const Plan& plan) {
  if (cut_balanced(model, options)) return "; parallel.cut_at = [] cuts so that all fit";
  for (int64_t stages = options.stages + 1; stages <= std::ssize(model.blocks); ++stages) {
    if (!cut_balanced(model, cut_options(plan, stages))) continue;
    return fmt::format("; or parallel.pipeline = {} with parallel.cut_at = []", to_text(stages));
  }
  return "";
}

// Share of the stages' time in which they wait, if each takes the time of its multiply-adds.
double bubble_of(const std::vector<StageCost>& stages, const Plan& plan) {
  double all = 0;
  PipelineDurations durations;
  for (const StageCost& stage : stages) {
    durations.forward.push_back(stage.forward);
    durations.backward.push_back(stage.backward);
    all += stage.work();
  }
  if (all <= 0) {  // no operator is counted: as if all stages took the same time
    std::fill(durations.forward.begin(), durations.forward.end(), 1.0);
    std::fill(durations.backward.begin(), durations.backward.end(), 1.0);
  }
  return simulate_pipeline(plan.parallel.schedule, plan.parallel.pipeline,
                           plan.batch.accumulation_steps, durations)
      .bubble;
}

// "layer3.0", or "layer3.0 to fc"
std::string blocks_text(const ModelBlocks& model, const StageCost& stage) {
  const std::string& first = model.blocks[stage.begin].name;
  if (stage.end - stage.begin == 1) return first;
  return first + " to " + model.blocks[stage.end - 1].name;
}

// A limit of the CPU, or one that was asked for, holds. What a device's own operators take may be
// less than the dry run's, which is of the CPU's.
void refuse_beyond_limit(const ModelBlocks& model, const std::vector<StageCost>& stages,
                         const CutOptions& options, const Request& request, const Plan& plan) {
  const bool holds = plan.device.device == "cpu" || request.source("memory.limit") == Source::asked;
  if (!holds || options.limit_bytes == 0) return;
  const auto largest =
      std::max_element(stages.begin(), stages.end(),
                       [](const StageCost& a, const StageCost& b) { return a.bytes < b.bytes; });
  if (largest->bytes <= options.limit_bytes) return;
  const bool share = sharers_of(plan, plan.parallel.pipeline) > 1;
  throw ConfigError(
      fmt::format("[plan] memory.limit {} leaves {} {}, and stage {} of {} ({}) keeps {}, {} more; "
                  "the smallest "
                  "limit that holds what stages keep: {}{}; memory.recompute or a smaller "
                  "batch.microbatch need "
                  "less",
                  size_text(plan.memory.limit_bytes), share ? "each stage" : "a stage",
                  size_text(options.limit_bytes), to_text(int64_t{largest - stages.begin()} + 1),
                  to_text(plan.parallel.pipeline), blocks_text(model, *largest),
                  size_text(largest->bytes), size_text(largest->bytes - options.limit_bytes),
                  limit_for(largest->bytes, plan), stages_that_fit(model, options, plan)));
}

void tell_stages(const ModelBlocks& model, const std::vector<StageCost>& stages,
                 const CutOptions& options, Plan& plan) {
  double all = 0;
  for (const StageCost& stage : stages) all += stage.work();
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageCost& stage = stages[i];
    const auto blocks = static_cast<int64_t>(stage.end - stage.begin);
    const int64_t in_flight = options.in_flight[i];
    std::string reason = fmt::format(
        "{} block{}, {} of the multiply-adds; {} of weights, their state and what {} "
        "microbatch{} in flight keep{}",
        to_text(blocks), blocks == 1 ? "" : "s", percent_text(all > 0 ? stage.work() / all : 0),
        size_text(stage.bytes), to_text(in_flight), in_flight == 1 ? "" : "es",
        in_flight == 1 ? "s" : "");
    if (i + 1 < stages.size()) {
      const int64_t across = model.blocks[stage.end - 1].output_bytes * options.samples;
      reason +=
          fmt::format("; {} a microbatch to the next stage, and as much back", size_text(across));
    }
    const bool is_over = options.limit_bytes > 0 && stage.bytes > options.limit_bytes;
    if (is_over) {
      reason += fmt::format(
          "; more than the {} that memory_limit leaves it: more stages, "
          "memory.recompute or a smaller batch.microbatch need less",
          size_text(options.limit_bytes));
    }
    plan.lines.push_back({fmt::format("stage_{}", to_text(static_cast<int64_t>(i + 1))),
                          blocks_text(model, stage), Source::planned, reason});
  }
}

}  // namespace

void plan_pipeline(const Request& request, Plan& plan) {
  ParallelPlan& parallel = plan.parallel;
  if (parallel.pipeline == 1) return;
  refuse_several_objectives(request);
  refuse_pictures(request);
  refuse_estimates(plan);
  const std::string microbatches = to_text(plan.batch.accumulation_steps);
  const std::string window =
      fmt::format("{} microbatch{} in a window", microbatches, microbatches == "1" ? "" : "es");
  PlanLine pipeline{"pipeline", fmt::format("{} stages", to_text(parallel.pipeline)),
                    request.source("parallel.pipeline"),
                    "each rank holds the parameters, gradients and optimizer state of one; at the "
                    "start it has the whole model's weights until it drops the others'"};
  PlanLine schedule{"pipeline_schedule", name(parallel.schedule),
                    request.source("parallel.pipeline_schedule"), window};
  if (!request.profile.blocks) {
    plan.lines.push_back(pipeline);
    plan.lines.push_back(schedule);
    return;
  }
  const ModelBlocks& model = *request.profile.blocks;
  const auto& asked = request.config.parallel.cut_at;
  const std::string problem = check_cut(model, parallel.pipeline, asked);
  if (!problem.empty()) throw ConfigError(problem);
  const CutOptions options = cut_options(plan, parallel.pipeline);
  PipelineCut cut;
  std::string why = "the first block of each later stage";
  if (!asked.empty()) {
    cut = cut_named(model, asked);
  } else if (const auto balanced = cut_balanced(model, options)) {
    cut = *balanced;
    why += ", so that the slowest stage has the fewest multiply-adds";
  } else {
    cut = cut_smallest(model, options).value();
    why += ", so that the largest stage has the fewest bytes; no cut fits memory_limit";
  }
  for (const size_t place : cut) parallel.cut_at.push_back(model.blocks[place].name);
  const auto stages = stage_costs(model, cut, options);
  refuse_beyond_limit(model, stages, options, request, plan);
  schedule.reason += fmt::format(
      "; the stages wait for {} of it, if they take the time of their multiply-adds "
      "and messages take none",
      percent_text(bubble_of(stages, plan)));
  plan.lines.push_back(pipeline);
  plan.lines.push_back(schedule);
  plan.lines.push_back({"cut_at", join(parallel.cut_at),
                        asked.empty() ? Source::planned : request.source("parallel.cut_at"), why});
  tell_stages(model, stages, options, plan);
}

}  // namespace tanren
