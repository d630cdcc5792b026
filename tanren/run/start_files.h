// What a run folder keeps of the files that its run began with, so that going on and evaluating need
// them no more: start.toml, the kind and the sizes that model.from_hf gave, and tokenizer/.
// Called by run.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"
#include "tanren/interop/pretrained.h"

#include <filesystem>

namespace tanren {

// Writes them into `folder`: what `filled` has over `asked`, and the tokenizer of the data if the
// config names one. What an earlier start left of its own goes: only for a run that begins. RunError as
// write_file.
void keep_start(const std::filesystem::path& folder, const RunConfig& asked,
                const ModelOptions& filled, const DataInfo& train);

// The model of `config` as `folder` keeps it, else resolve_model; data.*.tokenizer of `config` then name
// the kept one, if it is there.
Pretrained take_start(const std::filesystem::path& folder, RunConfig& config);

}  // namespace tanren
