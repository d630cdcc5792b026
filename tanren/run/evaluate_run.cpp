#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/identity.h"
#include "tanren/config/kinds.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/token_cache.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/model_description.h"
#include "tanren/run/connect.h"
#include "tanren/run/held_out.h"
#include "tanren/run/prepare_whole.h"
#include "tanren/run/run.h"
#include "tanren/run/same_table.h"
#include "tanren/run/sample.h"
#include "tanren/run/short_waits.h"
#include "tanren/run/start_files.h"
#include "tanren/run/write_outputs.h"
#include "tanren/run/write_predictions.h"
#include "tanren/train/estimate_statistics.h"
#include "tanren/train/evaluate.h"

#include <ATen/core/Tensor.h>

#include <set>
#include <utility>

namespace tanren {

void load_checkpoint(RunState& state, const std::filesystem::path& checkpoint, const Parts& parts) {
  const RankAxis& world = parts.ranks->world();
  const Snapshot snapshot = read_checkpoint(checkpoint, world.rank(), world.size());
  state.load(parts.device, snapshot.model, snapshot.optimizer, snapshot.run, snapshot.average,
             snapshot.slices);
}

std::filesystem::path chosen_checkpoint(const RunConfig& config,
                                        const std::filesystem::path& folder) {
  const std::string& which = config.evaluate.checkpoint;
  const auto checkpoints = folder / "checkpoints";
  const auto exported = exported_weights(folder);
  if (which == "exported") {
    if (exported) return *exported;
    throw CheckpointError("[eval] " + folder.string() +
                          " has no model.safetensors; a run writes it when it finishes");
  }
  if (which == "best") {
    if (auto best = best_checkpoint(checkpoints)) return *best;
    throw CheckpointError("[eval] " + folder.string() +
                          " keeps no best checkpoint; train with checkpoint.best = 1");
  }
  if (which != "latest") {
    if (auto step = checkpoint_of_step(checkpoints, std::stoll(which.substr(5)))) return *step;
    throw CheckpointError("[eval] " + checkpoints.string() + " has no complete " + which +
                          "; name one that it has in evaluate.checkpoint");
  }
  if (auto latest = latest_checkpoint(checkpoints)) return *latest;
  if (exported) return *exported;
  throw CheckpointError("[eval] " + folder.string() +
                        " has no complete checkpoint; train first with tanren run");
}

namespace {

// Loads a step folder into a state that only evaluates. The averages replace the weights if they
// are wanted. Returns the averages.
TensorMap load_to_evaluate(RunState& state, const std::filesystem::path& checkpoint,
                           const Parts& parts) {
  const RankAxis& world = parts.ranks->world();
  Snapshot snapshot = read_checkpoint(checkpoint, world.rank(), world.size());
  TensorMap averages;
  if (parts.plan.average.kind != Averaging::none && parts.plan.average.evaluate) {
    if (snapshot.average.values.empty()) {
      throw CheckpointError("[eval] " + checkpoint.string() +
                            " has no averaged weights; take the raw ones with --set "
                            "average.evaluate=false");
    }
    averages = averages_in(snapshot.average, &state, checkpoint.string());
  }
  for (const auto& [name, tensor] : averages) snapshot.model.tensors.set(name, tensor);
  state.load(parts.device, snapshot.model, snapshot.optimizer, snapshot.run, {}, snapshot.slices);
  return averages;
}

Evaluated evaluate_on(const std::shared_ptr<Communicator>& ranks, const RunConfig& config,
                      const std::filesystem::path& checkpoint, const Registry& registry,
                      const std::atomic<bool>* stop, const std::filesystem::path& outputs,
                      const PredictionsTo& predictions) {
  // RUN/checkpoints/STEP or RUN/FILE
  const bool is_step = std::filesystem::is_directory(checkpoint);
  const auto folder = is_step ? checkpoint.parent_path().parent_path() : checkpoint.parent_path();
  RunConfig asked = config;
  if (!is_step) asked.quantize = {};  // exported weights are those of the plain model
  asked.data.cache = token_cache_beside(folder).string();
  Prepared prepared = prepare(asked, registry, /*has_weights=*/true, folder, {}, /*trains=*/false);
  check_same_program(folder, program_of(config.model, prepared.task));
  if (!prepared.datasets.eval) {
    throw ConfigError("[evaluate] the config has no [data.eval]; add it, or set data.eval.kind");
  }
  if (config.data.eval.kind.empty()) check_held_out(config, prepared.datasets, checkpoint);
  fit_threads(prepared);
  check_same_table(config, *prepared.datasets.train, checkpoint, "eval");
  const ShortWaits waits(prepared.plan.device.threads);
  Parts parts = build_parts(prepared.plan, stop, registry.accelerators);
  parts.ranks = std::make_shared<Ranks>(ranks, prepared.plan.parallel);
  parts.ranks->check_alike({{"device and precision", computed_in(prepared.plan)}});
  RunState state = build_run_state(std::move(prepared.task), parts, /*trains=*/false);
  const DataInfo info = prepared.datasets.train->info();
  const auto& names = info.class_names;
  const Dataset& data = *prepared.datasets.eval;
  PredictionsWriter writer(predictions, {folder, checkpoint}, config, data, state.task, info,
                           *parts.ranks);
  const auto see = see_both(outputs_writer(outputs, data, state.task, *parts.ranks), writer);
  bool averaged = false;
  if (is_step) {
    const TensorMap averages = load_to_evaluate(state, checkpoint, parts);
    averaged = !averages.empty();
    if (averaged && parts.plan.average.buffers == AverageBuffers::estimate) {
      measure_statistics(state, parts, *prepared.datasets.train, averages);
    }
  } else {
    averaged = load_exported(state, checkpoint);
  }
  EvaluationReport report = evaluate(state, parts, data, nullptr, see);
  report.averaged = averaged;
  const std::string unwritten = writer.write();
  return {report, write_sample(state, parts, info), names, unwritten};
}

}  // namespace

Evaluated evaluate_checkpoint(const RunConfig& config, const std::filesystem::path& checkpoint,
                              const Registry& registry, const std::atomic<bool>* stop,
                              const std::filesystem::path& outputs,
                              const PredictionsTo& predictions) {
  return with_ranks(config, world_of(process_environment(), config.parallel.rendezvous),
                    registry.accelerators, [&](const std::shared_ptr<Communicator>& ranks) {
                      return evaluate_on(ranks, config, checkpoint, registry, stop, outputs,
                                         predictions);
                    });
}

RunConfig evaluated_on(RunConfig config, const std::filesystem::path& data,
                       const std::set<std::string>& requested) {
  RunConfig asked = config;  // with what --set asks for in [data.eval]
  const std::string section = config.data.eval.kind.empty() ? "data.train." : "data.eval.";
  if (config.data.eval.kind.empty()) asked.data.eval = asked.data.train;
  SourceOptions source = evaluation_source(config.data);
  if (source.kind == "synthetic") {
    throw ConfigError("[eval] the data of this run are synthetic, which no file holds; drop " +
                      data.string());
  }
  if (requested.count("data.eval.path") > 0) {
    throw ConfigError("[eval] data.eval.path is set and " + data.string() +
                      " is named; drop one of them");
  }
  check_is_there(source, data, "eval");
  if (dataset_kind(source.kind) == nullptr && source.path.empty()) {
    throw ConfigError(fmt::format(
        "[eval] {0}path is empty, so this run's data of kind '{1}' are read from no file, and not "
        "from {2}; drop it",
        section, source.kind, data.string()));
  }
  source.include.clear();
  source.delimiter.clear();  // detected again in each file
  source.exclude.clear();
  source.part.clear();
  config.data.eval = std::move(source);
  std::vector<std::string> keys;
  for (const std::string& key : requested) {
    if (key.starts_with(section)) keys.push_back("data.eval." + key.substr(section.size()));
  }
  take_keys(config, asked, keys);
  config.data.eval.path = std::filesystem::absolute(data).string();
  read_as_text(config.data.eval, !config.data.train.tokenizer.empty(), "data.eval");
  return config;
}

Evaluated evaluate_whole_model(const std::filesystem::path& file, const std::filesystem::path& data,
                               const std::vector<std::string>& sets, const Registry& registry,
                               const std::atomic<bool>* stop, const std::filesystem::path& outputs,
                               const PredictionsTo& predictions) {
  const SafetensorsFile read = read_safetensors(file);
  ModelDescription description = description_of(read.metadata, file, sets, registry.known());
  const QuantizeNote note = check_described(description, read, file.string(), registry.models);
  RunConfig& config = description.config;
  const DataInfo& info = description.info;
  auto opened = open_described(description, data, file, registry, "eval");
  const auto work = [&](const std::shared_ptr<Communicator>& ranks) {
    Prepared prepared =
        prepare_whole(description, read, note, file.string(), registry, std::move(opened));
    prepared.fit.dataset = prepared.datasets.eval.get();  // the training data are not available
    fit_threads(prepared);
    const ShortWaits waits(prepared.plan.device.threads);
    Parts parts = build_parts(prepared.plan, stop, registry.accelerators);
    parts.ranks = std::make_shared<Ranks>(ranks, prepared.plan.parallel);
    parts.ranks->check_alike({{"device and precision", computed_in(prepared.plan)}});
    RunState state = whole_state(std::move(prepared.task), parts, read.metadata);
    const Dataset& eval_data = *prepared.datasets.eval;
    PredictionsWriter writer(predictions, {file}, config, eval_data, state.task, info,
                             *parts.ranks);
    const auto see = see_both(outputs_writer(outputs, eval_data, state.task, *parts.ranks), writer);
    const auto report = evaluate(state, parts, eval_data, nullptr, see);
    const std::string unwritten = writer.write();
    Evaluated evaluated{report, write_sample(state, parts, info), info.class_names, unwritten};
    evaluated.report.averaged = weights_origin(read.metadata).averaged;
    return evaluated;
  };
  return with_ranks(config, world_of(process_environment(), config.parallel.rendezvous),
                    registry.accelerators, work);
}

}  // namespace tanren
