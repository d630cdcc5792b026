#include "tanren/run/run.h"

#include "tanren/base/error.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/write_config.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/metrics/jsonl_sink.h"
#include "tanren/plan/planner.h"
#include "tanren/plan/print.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/run/build.h"
#include "tanren/run/device.h"
#include "tanren/run/run_folder.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/memory_now.h"

#include <chrono>

namespace tanren {

namespace {

// What comes before the loop, shared by all verbs.
struct Prepared {
  Datasets datasets;
  Task task;
  Plan plan;
};

// `has_weights`: a checkpoint will follow, so model.init_from is not read again.
Prepared prepare(const RunConfig& config, const ModelRegistry& models, bool has_weights) {
  Machine machine = probe_machine();
  probe_accelerators(machine, config.run.device);
  Prepared prepared;
  prepared.datasets = open_datasets(config.data);
  prepared.task = build_task(config, models, *prepared.datasets.train);
  ModelProfile facts = profile(prepared.task, prepared.datasets);
  facts.initialised = initialise(prepared.task, config.model, has_weights);
  prepared.plan = make_plan(config, machine, facts);
  return prepared;
}

void load(RunState& state, const std::filesystem::path& checkpoint) {
  const Snapshot snapshot = read_checkpoint(checkpoint);
  state.load(snapshot.model, snapshot.optimizer, snapshot.run);
}

// Attempts of the log up to this checkpoint; what came after it was lost and happens again.
Summary summarise(const RunState& state, const LoopResult& loop, const Parts& parts) {
  Summary summary;
  summary.steps = state.step();
  summary.attempts = state.attempt;
  summary.skipped_steps = state.attempt - state.step();
  summary.wall_seconds = loop.train_seconds;
  summary.samples_per_second =
      loop.train_seconds > 0 ? static_cast<double>(loop.session_samples) / loop.train_seconds : 0;
  if (loop.last) summary.final_loss = loop.last->objectives.front().loss;
  if (loop.evaluation) summary.evaluate = loop.evaluation->values;
  summary.peak_memory_bytes = memory_now(parts.device);
  if (parts.plan.memory.cached_allocator) {
    summary.peak_tensor_bytes = cpu_memory_stats().peak_bytes;
  }
  summary.growth = loop.growth;
  summary.device_reads_per_step =
      loop.session_attempts > 0
          ? static_cast<double>(loop.device_reads) / static_cast<double>(loop.session_attempts)
          : 0;
  summary.status = loop.ending == Ending::finished ? "finished" : "stopped";
  return summary;
}

}  // namespace

RunOutput run(const RunInput& input, const ModelRegistry& models) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return input.started_at +
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const bool goes_on = latest_checkpoint(input.folder / "checkpoints").has_value();
  Prepared prepared = prepare(input.config, models, goes_on);
  RunFolder folder(input.folder, input.config);
  const std::string plan_text = tanren::plan_text(prepared.plan);
  folder.write("plan.txt", plan_text);

  const Parts parts = build_parts(prepared.plan, input.stop);
  RunState state = build_run_state(std::move(prepared.task), parts);
  if (folder.resume_from()) load(state, *folder.resume_from());

  std::unique_ptr<Sink> log;
  std::vector<Sink*> sinks = input.sinks;
  if (parts.plan.metrics.jsonl) {
    truncate_log(folder.log(), state.attempt);
    log = make_jsonl_sink(folder.log());
    sinks.insert(sinks.begin(), log.get());
  }
  if (input.started) input.started(parts.plan, folder.resume_from());

  const Surroundings surroundings{.train = *prepared.datasets.train,
                                  .eval = prepared.datasets.eval.get(),
                                  .checkpoints = folder.checkpoints(),
                                  .config_toml = to_toml(input.config),
                                  .plan_text = plan_text,
                                  .sinks = sinks};
  RunOutput output;
  const double before_loop = elapsed();
  output.loop = train_loop(state, parts, surroundings);
  output.summary = summarise(state, output.loop, parts);
  output.summary.startup_seconds = before_loop + output.loop.first_step_seconds;
  output.summary.wall_seconds = elapsed();
  folder.write("summary.json", to_json(output.summary) + "\n");
  return output;
}

Plan plan_only(const RunConfig& config, const ModelRegistry& models) {
  return prepare(config, models, /*has_weights=*/false).plan;
}

EvaluationReport evaluate_checkpoint(const RunConfig& config,
                                     const std::filesystem::path& checkpoint,
                                     const ModelRegistry& models, const std::atomic<bool>* stop) {
  Prepared prepared = prepare(config, models, /*has_weights=*/true);
  if (!prepared.datasets.eval) {
    throw ConfigError("[evaluate] the config has no [data.eval]; add it, or set data.eval.kind");
  }
  const Parts parts = build_parts(prepared.plan, stop);
  RunState state = build_run_state(std::move(prepared.task), parts);
  load(state, checkpoint);
  return evaluate(state, parts, *prepared.datasets.eval);
}

}  // namespace tanren
