// Transfer learning: a module takes its weights from a file. What does not fit is an error unless the
// config says to leave it; nothing is dropped in silence. Parts are frozen by train/freezing.h.
#pragma once

#include "tanren/checkpoint/weights_file.h"
#include "tanren/config/run_config.h"

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct InitReport {
  int64_t loaded = 0;                // tensors
  std::vector<std::string> skipped;  // of the module: kept as they were initialised
  std::vector<std::string> ignored;  // of the file: left there
  std::vector<std::string> remarks;  // what the file is, prefixes taken off

  // "18 of 20 tensors from net.pt (state_dict); kept head.weight, head.bias".
  std::string text(const std::string& path) const;
};

// model.init_rename, each as {old, new}.
std::vector<std::pair<std::string, std::string>> rename_pairs(const ModelOptions& options);

// Patterns of what model.append_head adds, which files of the model alone lack.
std::vector<std::string> appended_heads(const ModelOptions& options);

// Copies the weights and buffers of options.init_from (a weights file, a checkpoint's folder, or a run
// folder: its newest checkpoint) into the module, renamed by options.init_rename, without those
// that match options.init_skip, on either side. CheckpointError listing names and shapes of whatever
// else is missing, unexpected or of another shape; then nothing was copied. An appended head may be
// missing in the file.
InitReport init_from_file(torch::nn::Module& module, const ModelOptions& options);

// The same with the tensors in hand; `path` stands in errors. What matches a pattern of `heads` may be
// missing on either side: in `state` it is initialised anew, in the module it is left.
InitReport init_from_state(torch::nn::Module& module, StateDict state, const ModelOptions& options,
                           const std::string& path, const std::vector<std::string>& heads);

}  // namespace tanren
