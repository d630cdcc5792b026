#include "tanren/predict/described_model.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/interop/export.h"
#include "tanren/run/prepare.h"
#include "tanren/run/run.h"
#include "tanren/run/run_folder.h"

#include <algorithm>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

bool asks_for_checkpoint(const std::vector<std::string>& sets) {
  return std::any_of(sets.begin(), sets.end(), [](const std::string& set) {
    return set.starts_with("evaluate.checkpoint=");
  });
}

// The weights of a checkpoint, or of an exported file.
SafetensorsFile weights_at(const fs::path& checkpoint, bool wants_average) {
  return fs::is_directory(checkpoint) ? checkpoint_weights(checkpoint, wants_average)
                                      : read_safetensors(checkpoint);
}

// Of a finished run: what it exported, unless another checkpoint is asked for or newer.
DescribedModel exported_model(const fs::path& folder, const std::vector<std::string>& sets,
                              const Registry& registry) {
  const fs::path file = folder / kWholeFile;
  SafetensorsFile read = read_safetensors(file);
  ModelDescription description = description_of(read.metadata, file, sets, registry.known());
  const bool averages = recorded_config(folder).average.evaluate;
  const FolderWeights newest = weights_of_folder(folder);
  if (asks_for_checkpoint(sets)) {
    read = weights_at(chosen_checkpoint(description.config, folder), averages);
  } else if (!newest.remark.empty()) {
    log("[predict] " + newest.remark);
    read = weights_at(*latest_checkpoint(folder / "checkpoints"), averages);
  }
  return {std::move(description), std::move(read), folder.string()};
}

// Of a run that is not finished: its data say what the model was built for.
DescribedModel unfinished_model(const fs::path& folder, const std::vector<std::string>& sets,
                                const Registry& registry) {
  const RunConfig config = config_of_folder(folder, {}, registry.known());
  const auto checkpoints = folder / "checkpoints";
  if (!latest_checkpoint(checkpoints)) {
    throw CheckpointError("[predict] " + folder.string() +
                          " has no complete checkpoint; train first with tanren run");
  }
  const Prepared prepared =
      prepare(config, registry, /*has_weights=*/true, folder, {}, /*trains=*/false);
  const Dataset& train = *prepared.datasets.train;
  const Metadata metadata = describe_model(prepared.config, train.info(), train.size());
  ModelDescription description =
      description_of(metadata, folder / "config.toml", sets, registry.known());
  auto checkpoint = best_checkpoint(checkpoints);
  if (!checkpoint) checkpoint = latest_checkpoint(checkpoints);
  if (asks_for_checkpoint(sets)) checkpoint = chosen_checkpoint(description.config, folder);
  return {std::move(description), weights_at(*checkpoint, config.average.evaluate),
          checkpoint->string()};
}

}  // namespace

DescribedModel described_model(const fs::path& path, const std::vector<std::string>& sets,
                               const Registry& registry) {
  std::error_code none;
  if (!fs::exists(path, none)) {
    throw ConfigError("[predict] there is no " + path.string() +
                      "; name a run folder, a model.tanren.safetensors or a converted folder");
  }
  if (!fs::is_directory(path, none)) {
    if (path.extension() != ".safetensors") {
      throw ConfigError("[predict] " + path.string() +
                        " is no model; name a run folder, a model.tanren.safetensors or a "
                        "converted folder");
    }
    SafetensorsFile read = read_safetensors(path);
    ModelDescription description = description_of(read.metadata, path, sets, registry.known());
    return {std::move(description), std::move(read), path.string()};
  }
  const bool is_run = fs::exists(path / "config.toml", none);
  if (is_run && fs::exists(path / kWholeFile, none)) return exported_model(path, sets, registry);
  if (is_run) return unfinished_model(path, sets, registry);
  if (fs::exists(path / "config.json", none)) return transformers_model(path, sets, registry);
  if (fs::exists(path / "architecture.json", none)) {
    throw ConfigError("[predict] " + path.string() +
                      " was converted for torch.load, which keeps no transform of its data; give "
                      "the run folder or the model.tanren.safetensors that it was made from");
  }
  throw ConfigError("[predict] " + path.string() +
                    " is neither a run folder (config.toml) nor a folder of transformers "
                    "(config.json); name one");
}

}  // namespace tanren
