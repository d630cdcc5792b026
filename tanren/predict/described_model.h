// Reads the model that tanren predict or generate is given, in any of its forms, as one description
// and weights.
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
  std::string weights;   // "the averaged weights of runs/a/checkpoints/step-400, step 400"
};

// `verb` begins the errors ("predict"). `path` is one of:
// - a whole model's file;
// - a run folder: its exported model, or, if there is none or the run was resumed after the export,
// its best checkpoint, else its newest (evaluate.checkpoint names another);
// - a folder of transformers with a classifier of texts (bert, gpt2) and its tokenizer, or with a
// gpt2 that predicts tokens.
// A run that is not finished must have its data, unless they are of the kind text or tokens. `sets`
// change keys of the description. The run's own predict.*, memory.limit and run.device apply unless
// `sets` change them. ConfigError for anything else, and for averaged weights of a checkpoint whose
// batch norm statistics a run would measure first. Other errors as description_of, read_checkpoint
// and resolve_model.
DescribedModel described_model(const std::filesystem::path& path,
                               const std::vector<std::string>& sets, const Registry& registry,
                               const std::string& verb = "predict");

// Makes all ranks take the checkpoint that rank 0 has chosen, because a run that is still training
// may have saved another one since. `mine` is described_model of the same arguments. An exchange.
DescribedModel agreed_model(DescribedModel mine, const std::filesystem::path& path,
                            std::vector<std::string> sets, const Registry& registry,
                            Communicator& ranks, const std::string& verb);

// Prepares the model (prepare_whole) and moves its weights from `model.read` into the task. `path`
// is that of described_model. ConfigError if the model's program is not the one with which its run
// began: the program may have been replaced since described_model checked it.
Prepared prepared_model(DescribedModel& model, const std::filesystem::path& path,
                        const Registry& registry);

// The assumed number of samples that a model was trained on, if it is unknown and the data are not
// read.
inline constexpr int64_t kManySamples = int64_t{1} << 20;

// described_model() for a folder that transformers opens. Implemented in transformers_model.cpp.
DescribedModel transformers_model(const std::filesystem::path& path,
                                  const std::vector<std::string>& sets, const Registry& registry,
                                  const std::string& verb);

}  // namespace tanren
