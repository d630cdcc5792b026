// Keeps in the run folder what its run began with, so that resuming and evaluating do not need the
// original files: start.toml (the kind and sizes from model.from_hf, the checksum of a package) and
// tokenizer/. Called by run.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/interop/pretrained.h"

#include <filesystem>

namespace tanren {

// Writes these files into `folder`: the keys that `filled` has beyond `asked`, the checksum of the
// graph that computes the task, if one does, and the data's tokenizer if the config names one.
// Removes those of an earlier start, so call it only for a run that begins. RunError as write_file.
void keep_start(const std::filesystem::path& folder, const RunConfig& asked,
                const ModelOptions& filled, const TaskFacts& task, const DataInfo& train);

// ConfigError if the run in `folder` began with another compiled graph than that of `task`.
void check_same_graph(const std::filesystem::path& folder, const TaskFacts& task);

// The model of `config` as kept in `folder`, else resolve_model. data.*.tokenizer of `config` are
// set to the kept tokenizer, if it exists.
Pretrained take_start(const std::filesystem::path& folder, RunConfig& config);

}  // namespace tanren
