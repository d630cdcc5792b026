// Keeps the files with which a run began in its folder, so that resuming and evaluating do not need
// the originals: start.toml (kind and sizes from model.from_hf, the checksum of the program that
// computes the model) and tokenizer/. Called by run.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/interop/pretrained.h"

#include <filesystem>
#include <optional>
#include <string>

namespace tanren {

// A program that computes a model in place of this program's own code.
struct ModelProgram {
  std::string sort;      // "package", "TorchScript file"
  std::string checksum;  // 16 hexadecimal digits
};
// The program in the file or folder of model.path, which is not loaded. No value: the model has
// none, or it does not exist.
std::optional<ModelProgram> program_of(const ModelOptions& model);
// The program from which the task of `model` was made, even if model.path now names another.
std::optional<ModelProgram> program_of(const ModelOptions& model, const Task& task);

// Writes these files into `folder`: the keys that `filled` has beyond `asked`, the checksum of
// `program`, and the data's tokenizer if the config names one. Removes the files of an earlier
// start, so call it only for a run that begins. RunError as write_file.
void keep_start(const std::filesystem::path& folder, const RunConfig& asked,
                const ModelOptions& filled, const std::optional<ModelProgram>& program,
                const DataInfo& train);

// ConfigError if the run in `folder` began with another program than this one. Without a folder, or
// if one of the two has no program, there is nothing to compare.
void check_same_program(const std::filesystem::path& folder,
                        const std::optional<ModelProgram>& program);

// The model of `config` as kept in `folder`, else resolve_model. data.*.tokenizer of `config` are
// set to the kept tokenizer, if it exists.
Pretrained take_start(const std::filesystem::path& folder, RunConfig& config);

}  // namespace tanren
