// Keeps in the run folder what its run began with, so that resuming and evaluating need not the
// original files: start.toml (kind and sizes from model.from_hf, the checksum of the program that
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

// What computes a model in the place of this program's own code.
struct ModelProgram {
  std::string sort;      // "package", "TorchScript file"
  std::string checksum;  // 16 hexadecimal digits
};
// That of the file or folder in model.path, which is not loaded. No value: the model has none, or
// it is not there.
std::optional<ModelProgram> program_of(const ModelOptions& model);
// That which the task of `model` was made of, whatever model.path names by now.
std::optional<ModelProgram> program_of(const ModelOptions& model, const Task& task);

// Writes these files into `folder`: the keys that `filled` has beyond `asked`, the checksum of
// `program`, and the data's tokenizer if the config names one. Removes those of an earlier start,
// so call it only for a run that begins. RunError as write_file.
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
