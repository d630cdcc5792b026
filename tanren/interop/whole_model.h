// Whole models: one safetensors file that holds weights and, in its metadata, all that is needed to
// use them: the [model] section with its sizes, how data are read, class names, tokenizer files.
// Written by a finished run; `tanren eval FILE DATA` and load_model() need nothing else. The
// metadata are untrusted: checked like a config, and no size or path in them is taken unchecked.
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

// The metadata that accompanies the weights.
struct ModelDescription {
  RunConfig config;           // model, data, batch, precision, evaluate, generate; no paths
  DataInfo info;              // of the training data, with the tokenizer's files
  int64_t train_samples = 1;  // training samples; batch.global_batch = "epoch" refers to it
};

// Metadata of a model made from `resolved` (resolve_model) and data like `info`. The sections for
// training, paths, and the selection of files (include, exclude, part) are left out. Evaluation
// data are read as [data.eval] says, else as [data.train] without its augmentation.
Metadata describe_model(const RunConfig& resolved, const DataInfo& info, int64_t train_samples);

// How evaluation data are read, in whatever file or folder they are: as [data.eval] says, else as
// [data.train] without its augmentation. The tokenizer and the names of classes are training's.
SourceOptions evaluation_source(const DataOptions& data);

// Reads the metadata back; `sets` as on the command line. ConfigError naming the file if the
// description is missing, of another version, or malformed; errors in the config as read_config.
ModelDescription description_of(const Metadata& metadata, const std::filesystem::path& file,
                                const std::vector<std::string>& sets, const KnownKinds& known);
// Whether the metadata describe a model at all.
bool describes_model(const Metadata& metadata);

// CheckpointError listing the `tensors` that do not fit the described model. Allocates no tensor
// memory for tanren's own kinds; other kinds are not checked.
void check_described(const ModelDescription& description, const TensorMap& tensors,
                     const std::string& what, const ModelRegistry& models);
// The model with these tensors, on the CPU, in eval mode. Errors as check_described, for any kind.
Task build_described(const ModelDescription& description, const TensorMap& tensors,
                     const std::string& what, const ModelRegistry& models);

// Replaces the training data: knows their description but holds no samples. `size` is only
// reported.
std::unique_ptr<Dataset> described_dataset(DataInfo info, int64_t size);

class WholeModel {
 public:
  Task task;              // module (eval mode, CPU); task.predict predicts
  RunConfig config;       // as ModelDescription
  DataInfo info;          // class_names, input_shape, vocab_size, tokenizer
  int64_t step = 0;       // of the weights
  bool averaged = false;  // the weights are an average over steps
  DatasetRegistry kinds;  // of data

  // Labelled data of the model's kind (DATA of `tanren eval`), read as in its evaluations.
  std::unique_ptr<Dataset> open(const std::filesystem::path& data) const;
  // Texts without labels as a batch; `second` for pairs. ConfigError if the model reads no texts,
  // or the counts differ.
  Batch texts(const std::vector<std::string>& first,
              const std::vector<std::string>& second = {}) const;
  // JPEG and PNG files as a batch. ConfigError if the model reads no images; DataError for a broken
  // file.
  Batch images(const std::vector<std::filesystem::path>& files) const;
};

// Reads a whole model's file. Errors as read_safetensors, description_of and build_described.
WholeModel load_model(const std::filesystem::path& file, const Registry& registry = {});

}  // namespace tanren
