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
  names.reserve(objectives.size());
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

CutOptions cut_options(const Plan& plan) {
  CutOptions options{.stages = plan.parallel.pipeline, .samples = plan.batch.microbatch};
  options.most_samples = plan.batch.per_rank;
  for (int64_t stage = 0; stage < options.stages; ++stage) {
    options.in_flight.push_back(most_in_flight(pipeline_actions(
        plan.parallel.schedule, stage, options.stages, plan.batch.accumulation_steps)));
  }
  return options;
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

void tell_stages(const ModelBlocks& model, const std::vector<StageCost>& stages,
                 const CutOptions& options, Plan& plan) {
  double all = 0;
  for (const StageCost& stage : stages) all += stage.work();
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageCost& stage = stages[i];
    const auto blocks = static_cast<int64_t>(stage.end - stage.begin);
    const int64_t in_flight = options.in_flight[i];
    std::string reason = fmt::format(
        "{} block{}, {} of the multiply-adds; {} microbatch{} in flight", to_text(blocks),
        blocks == 1 ? "" : "s", percent_text(all > 0 ? stage.work() / all : 0), to_text(in_flight),
        in_flight == 1 ? "" : "es");
    if (i + 1 < stages.size()) {
      const int64_t across = model.blocks[stage.end - 1].output_bytes * options.samples;
      reason +=
          fmt::format("; {} a microbatch to the next stage, and as much back", size_text(across));
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
  const CutOptions options = cut_options(plan);
  const std::string why = "the first block of each later stage";
  // The forecast checks whether the stages fit memory, and may cut elsewhere (fit_stages).
  const PipelineCut cut =
      asked.empty() ? cut_balanced(model, options).value() : cut_named(model, asked);
  for (const size_t place : cut) parallel.cut_at.push_back(model.blocks[place].name);
  const auto stages = stage_costs(model, cut, options);
  schedule.reason += fmt::format(
      "; the stages wait for {} of it, if they take the time of their multiply-adds "
      "and messages take none",
      percent_text(bubble_of(stages, plan)));
  plan.lines.push_back(pipeline);
  plan.lines.push_back(schedule);
  plan.lines.push_back({"cut_at", join(parallel.cut_at),
                        asked.empty() ? Source::planned : request.source("parallel.cut_at"),
                        asked.empty() ? why + ", so that the slowest stage has the fewest "
                                              "multiply-adds"
                                      : why});
  tell_stages(model, stages, options, plan);
}

}  // namespace tanren
