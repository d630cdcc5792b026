// The model that tanren predict or generate is given, in any of its forms, as one description and
// weights.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/model_description.h"
#include "tanren/run/prepare.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct DescribedModel {
  ModelDescription description;
  SafetensorsFile read;  // weights; metadata with step and kind of weights
  std::string name;      // of the file or folder, for messages
  std::string step;      // "step-400", the checkpoint that was taken; empty: none
  std::string weights;   // "step 400, averaged weights of runs/a/checkpoints/step-400"
};

// `verb` begins the errors ("predict"). `path` is a whole model's file; a run folder: its exported
// model, or, if the run goes on or went on after it, its best checkpoint, else its newest
// (evaluate.checkpoint names another); or a folder of transformers with a classifier of texts
// (bert, gpt2) and its tokenizer, or with a gpt2 that predicts tokens. A run that is not finished
// must have its data, unless they are of the kind text or tokens. `sets` change keys of the
// description; predict.*, memory.limit and run.device are the run's where they do not. ConfigError
// for anything else, and for averaged weights of a checkpoint whose batch norm statistics a run
// would measure first; errors as description_of, read_checkpoint and resolve_model.
DescribedModel described_model(const std::filesystem::path& path,
                               const std::vector<std::string>& sets, const Registry& registry,
                               const std::string& verb = "predict");

// All ranks take the checkpoint that rank 0 has chosen: a run that goes on may have saved another
// since. `mine` is described_model of the same arguments. An exchange.
DescribedModel agreed_model(DescribedModel mine, const std::filesystem::path& path,
                            std::vector<std::string> sets, const Registry& registry,
                            Communicator& ranks);

// The model made ready (prepare_whole), without its weights in `model.read`, which the task has
// from then on. ConfigError if its program is another than the one that its run began with: it may
// have been exchanged since described_model, whose `path` is given again, has compared it.
Prepared prepared_model(DescribedModel& model, const std::filesystem::path& path,
                        const Registry& registry);

// How many samples a model was trained on, if that is unknown and its data are not read.
inline constexpr int64_t kManySamples = int64_t{1} << 20;

// A folder that transformers opens, as described_model. One file: transformers_model.cpp.
DescribedModel transformers_model(const std::filesystem::path& path,
                                  const std::vector<std::string>& sets, const Registry& registry,
                                  const std::string& verb);

}  // namespace tanren
