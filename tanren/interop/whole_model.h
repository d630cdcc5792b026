// Whole models: one safetensors file that holds weights and, in its metadata, what it takes to use
// them: the [model] section with its sizes, how data are read, class names, tokenizer files.
// Written by a finished run; `tanren eval FILE DATA` and load_model() need nothing else.
// What the metadata say is checked like a config and never trusted with a size or a path.
#pragma once

#include "tanren/base/task.h"
#include "tanren/data/dataset.h"
#include "tanren/formats/safetensors.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// What stands in the metadata beside the weights.
struct ModelDescription {
  RunConfig config;           // model, data, batch, precision, evaluate, generate; no paths
  DataInfo info;              // of the training data, with the tokenizer's files
  int64_t train_samples = 1;  // how many there were: batch.global_batch = "epoch" means it
};

// Metadata of a model that was made of `resolved` (resolve_model) and data like `info`. Training's own
// sections, paths, and what picks files (include, exclude, part) are left out; evaluation data are
// read as [data.eval] says, else as [data.train] without its augmentation.
Metadata describe_model(const RunConfig& resolved, const DataInfo& info, int64_t train_samples);

// Reads it back; `sets` as on the command line. ConfigError naming the file where it is missing, of
// another version, or malformed; what is wrong in the config as read_config.
ModelDescription description_of(const Metadata& metadata, const std::filesystem::path& file,
                                const std::vector<std::string>& sets, const KnownKinds& known);
// Whether metadata describe a model at all.
bool describes_model(const Metadata& metadata);

// CheckpointError listing what of `tensors` does not fit the model of a description. Takes no memory for
// tanren's own kinds; others are not looked at.
void check_described(const ModelDescription& description, const TensorMap& tensors,
                     const std::string& what, const ModelRegistry& models);
// The model with the tensors in it, on the CPU, in eval mode. Errors as check_described, for any kind.
Task build_described(const ModelDescription& description, const TensorMap& tensors,
                     const std::string& what, const ModelRegistry& models);

// Stands where training data would: knows what they were, has none. `size` samples by name only.
std::unique_ptr<Dataset> described_dataset(DataInfo info, int64_t size);

class WholeModel {
 public:
  Task task;              // module (eval mode, CPU) and what predicts: task.predict
  RunConfig config;       // as ModelDescription
  DataInfo info;          // class_names, input_shape, vocab_size, tokenizer
  int64_t step = 0;       // of the weights
  bool averaged = false;  // they are an average over steps
  DatasetRegistry kinds;  // of data

  // Labelled data of the model's kind (what DATA is to `tanren eval`), read as its evaluations did.
  std::unique_ptr<Dataset> open(const std::filesystem::path& data) const;
  // Texts without labels as a batch; `second` for pairs. ConfigError where the model reads no texts, or
  // the counts differ.
  Batch texts(const std::vector<std::string>& first,
              const std::vector<std::string>& second = {}) const;
  // JPEG and PNG files as a batch. ConfigError where the model reads no images; DataError for one that
  // is broken.
  Batch images(const std::vector<std::filesystem::path>& files) const;
};

// Reads such a file. Errors as read_safetensors, description_of and build_described.
WholeModel load_model(const std::filesystem::path& file, const Registry& registry = {});

}  // namespace tanren
