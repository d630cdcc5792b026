// Whole models: one safetensors file that holds weights and, in its metadata, all that is needed to
// use them (interop/model_description.h). Written by a finished run; `tanren eval FILE DATA` and
// load_model() need nothing else.
#pragma once

#include "tanren/base/task.h"
#include "tanren/data/dataset.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/quantize_note.h"
#include "tanren/quantize/quantized_parameters.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

class WholeModel {
 public:
  Task task;               // module (eval mode, CPU); task.predict predicts
  RunConfig config;        // as ModelDescription (model_description.h)
  DataInfo info;           // class_names, input_shape, vocab_size, tokenizer
  int64_t step = 0;        // the training step of the weights
  bool averaged = false;   // the weights are an average over steps
  QuantizeNote quantized;  // its 8-bit weights; empty: it has none
  // The 8-bit weights, if this program made them (post_training/quantize_model.h). Empty if there
  // are none, or if they came from a file, so that only the task has them.
  QuantizedParameters eight_bit;
  Metadata metadata;      // the file's metadata
  DatasetRegistry kinds;  // kinds of data

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

// Reads a whole model's file. Its floating tensors become fp32. 8-bit weights stay 8-bit: the
// task's functions compute with them, and their parameters in the module are NaN. Errors as
// read_safetensors, description_of, check_described and build_described.
WholeModel load_model(const std::filesystem::path& file, const Registry& registry = {});

// Writes the model as it is now, with its 8-bit weights if it has any, completely or not at all.
// InputError for a model whose 8-bit weights came from a file; copy that file instead.
void write_whole_model(const std::filesystem::path& file, const WholeModel& model);

}  // namespace tanren
