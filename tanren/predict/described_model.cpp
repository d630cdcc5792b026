#include "tanren/predict/described_model.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/comm/exchange.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/export.h"
#include "tanren/run/prepare_whole.h"
#include "tanren/run/run.h"
#include "tanren/run/run_folder.h"
#include "tanren/run/same_table.h"
#include "tanren/run/start_files.h"

#include <algorithm>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

bool asks_for(const std::vector<std::string>& sets, const std::string& key) {
  return std::any_of(sets.begin(), sets.end(), [&](const std::string& set) {
    return set == key || set.starts_with(key + "=");
  });
}

// Copies the run's options for predictions and the machine, which its exported model does not
// contain, unless `sets` change them. A model with 8-bit weights stays on the CPU (description_of).
void take_over(const RunConfig& run, const std::vector<std::string>& sets, bool has_8_bits,
               RunConfig& config) {
  if (!asks_for(sets, "predict.scores")) config.predict.scores = run.predict.scores;
  if (!asks_for(sets, "predict.broken")) config.predict.broken = run.predict.broken;
  if (!asks_for(sets, "memory.limit")) config.memory.limit = run.memory.limit;
  if (!asks_for(sets, "run.device") && !has_8_bits) config.run.device = run.run.device;
}

[[noreturn]] void refuse_untrained(const fs::path& folder, const std::string& verb) {
  throw CheckpointError("[" + verb + "] " + folder.string() +
                        " has no complete checkpoint; train first with tanren run");
}

// The checkpoint that is asked for, else the best, else the newest.
fs::path checkpoint_of(const fs::path& folder, const RunConfig& config,
                       const std::vector<std::string>& sets, const std::string& verb) {
  if (asks_for(sets, "evaluate.checkpoint")) return chosen_checkpoint(config, folder);
  const auto checkpoints = folder / "checkpoints";
  if (const auto best = best_checkpoint(checkpoints)) return *best;
  if (const auto newest = latest_checkpoint(checkpoints)) return *newest;
  refuse_untrained(folder, verb);
}

bool has_statistics(const SafetensorsFile& read) {
  return std::any_of(read.tensors.begin(), read.tensors.end(),
                     [](const auto& named) { return named.first.ends_with("running_mean"); });
}

// The weights of a checkpoint, or of an exported file, as the run evaluates them.
SafetensorsFile weights_at(const fs::path& checkpoint, const RunConfig& run, bool averaged,
                           const std::string& verb) {
  if (!fs::is_directory(checkpoint)) return read_safetensors(checkpoint);
  SafetensorsFile read = checkpoint_weights(checkpoint, averaged);
  const AverageOptions& average = run.average;
  // The norms of a quantisation-aware training are in eval mode, and nothing changes their
  // statistics.
  const bool measures =
      run.quantize.scheme == "none" &&
      (average.buffers == "estimate" || (average.buffers == "auto" && average.kind == "swa"));
  if (weights_origin(read.metadata).averaged && measures && has_statistics(read)) {
    throw ConfigError(
        "[" + verb + "] the averaged weights of " + checkpoint.string() +
        " need batch norm statistics of their own (average.buffers = \"estimate\"), which a run "
        "measures at its end; finish the run, or take the raw weights with --set "
        "average.evaluate=false");
  }
  return read;
}

// The text with which tanren eval names the weights.
std::string told_weights(const SafetensorsFile& read, const fs::path& from) {
  const auto step = read.metadata.find("step");
  return (weights_origin(read.metadata).averaged ? "the averaged weights of " : "the weights of ") +
         from.string() + (step != read.metadata.end() ? ", step " + step->second : "");
}

// Whether to use a checkpoint's averaged weights: as `sets` say, else as the run's config. If the
// run averages, removes average.evaluate from `sets`, because a description has no averages.
bool wants_average(const RunConfig& run, std::vector<std::string>& sets) {
  bool wants = run.average.evaluate;
  if (run.average.kind == "none") return wants;
  std::erase_if(sets, [&](const std::string& set) {
    const bool is_on = set == "average.evaluate=true";
    if (!is_on && set != "average.evaluate=false") return false;
    wants = is_on;
    return true;
  });
  return wants;
}

// The model of a finished run: its export, unless another checkpoint is asked for or the run was
// resumed after the export.
DescribedModel exported_model(const fs::path& folder, std::vector<std::string> sets,
                              const Registry& registry, const std::string& verb) {
  fs::path file = folder / kWholeFile;
  SafetensorsFile read = read_safetensors(file);
  const RunConfig run = recorded_config(folder);
  const bool went_on = !weights_of_folder(folder).remark.empty();
  const bool has_checkpoint = went_on || asks_for(sets, "evaluate.checkpoint");
  const bool is_export = asks_for(sets, "evaluate.checkpoint=exported");
  const bool averaged = has_checkpoint && !is_export && wants_average(run, sets);
  ModelDescription description = description_of(read.metadata, file, sets, registry.known());
  const bool has_8_bits = read.metadata.count(kQuantizeKey) > 0;
  take_over(run, sets, has_8_bits, description.config);
  if (has_checkpoint) {
    file = checkpoint_of(folder, description.config, sets, verb);
    read = weights_at(file, run, averaged, verb);
  }
  std::string told = told_weights(read, file);
  const std::string step = fs::is_directory(file) ? file.filename().string() : "";
  if (went_on) log("[" + verb + "] the run went on after its export; took " + told);
  return {std::move(description), std::move(read), folder.string(), step, std::move(told)};
}

// The description of an unfinished run's model, made from the run's data.
Metadata description_of_run(const RunConfig& config, const fs::path& folder,
                            const fs::path& checkpoint, const Registry& registry,
                            const std::string& verb) {
  const std::string& kind = config.data.train.kind;
  if (kind == "text" || kind == "tokens") {  // the tokenizer is enough
    RunConfig resolved = config;
    resolved.model = take_start(folder, resolved).model;
    return describe_model(resolved, token_info(resolved.data.train, "data.train"), kManySamples);
  }
  const Prepared prepared =
      prepare(config, registry, /*has_weights=*/true, folder, {}, /*trains=*/false);
  const Dataset& train = *prepared.datasets.train;
  check_same_table(config, train, checkpoint, verb);
  return describe_model(prepared.config, train.info(), train.size());
}

DescribedModel unfinished_model(const fs::path& folder, std::vector<std::string> sets,
                                const Registry& registry, const std::string& verb) {
  const RunConfig config = config_of_folder(folder, {}, registry.known());
  const bool averaged = wants_average(config, sets);
  const auto latest = latest_checkpoint(folder / "checkpoints");
  if (!latest) refuse_untrained(folder, verb);
  const Metadata metadata = description_of_run(config, folder, *latest, registry, verb);
  ModelDescription description =
      description_of(metadata, folder / "config.toml", sets, registry.known());
  take_over(config, sets, /*has_8_bits=*/false, description.config);
  const fs::path checkpoint = checkpoint_of(folder, description.config, sets, verb);
  SafetensorsFile read = weights_at(checkpoint, config, averaged, verb);
  std::string told = told_weights(read, checkpoint);
  const std::string step = fs::is_directory(checkpoint) ? checkpoint.filename().string() : "";
  return {std::move(description), std::move(read), checkpoint.string(), step, std::move(told)};
}

}  // namespace

DescribedModel described_model(const fs::path& path, const std::vector<std::string>& sets,
                               const Registry& registry, const std::string& verb) {
  std::error_code none;
  if (!fs::exists(path, none)) {
    throw ConfigError("[" + verb + "] there is no " + path.string() +
                      "; name a run folder, a model.tanren.safetensors or a converted folder");
  }
  if (!fs::is_directory(path, none)) {
    if (path.extension() != ".safetensors") {
      throw ConfigError("[" + verb + "] " + path.string() +
                        " is no model; name a run folder, a model.tanren.safetensors or a "
                        "converted folder");
    }
    SafetensorsFile read = read_safetensors(path);
    ModelDescription description = description_of(read.metadata, path, sets, registry.known());
    std::string told = told_weights(read, path);
    return {std::move(description), std::move(read), path.string(), "", std::move(told)};
  }
  const bool is_run = fs::exists(path / "config.toml", none);
  if (is_run) {
    DescribedModel model = fs::exists(path / kWholeFile, none)
                               ? exported_model(path, sets, registry, verb)
                               : unfinished_model(path, sets, registry, verb);
    check_same_program(path, program_of(model.description.config.model));
    return model;
  }
  if (fs::exists(path / "config.json", none)) {
    return transformers_model(path, sets, registry, verb);
  }
  if (fs::exists(path / "architecture.json", none)) {
    throw ConfigError("[" + verb + "] " + path.string() +
                      " was converted for torch.load, which keeps no transform of its data; give "
                      "the run folder or the model.tanren.safetensors that it was made from");
  }
  throw ConfigError("[" + verb + "] " + path.string() +
                    " is neither a run folder (config.toml) nor a folder of transformers "
                    "(config.json); name one");
}

Prepared prepared_model(DescribedModel& model, const fs::path& path, const Registry& registry) {
  const QuantizeNote note =
      check_described(model.description, model.read, model.name, registry.models);
  Prepared prepared =
      prepare_whole(model.description, model.read, note, model.name, registry, /*eval=*/nullptr);
  model.read.tensors = {};
  check_same_program(path, program_of(model.description.config.model, prepared.task));
  return prepared;
}

DescribedModel agreed_model(DescribedModel mine, const fs::path& path,
                            std::vector<std::string> sets, const Registry& registry,
                            Communicator& ranks, const std::string& verb) {
  if (ranks.world_size() == 1) return mine;
  const std::string first = gather_texts(ranks, mine.step).front();
  if (first == mine.step) return mine;
  std::erase_if(sets, [](const auto& set) { return set.starts_with("evaluate.checkpoint="); });
  sets.push_back("evaluate.checkpoint=" + (first.empty() ? "exported" : first));
  return described_model(path, sets, registry, verb);
}

}  // namespace tanren
