// Transfer learning: a module takes its weights from a file. A tensor that does not fit is an error
// unless the config skips it; nothing is dropped silently. train/freezing.h freezes parts.
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
  std::vector<std::string> skipped;  // of the module: keep their initial values
  std::vector<std::string> ignored;  // of the file: not loaded
  std::vector<std::string> remarks;  // what the file is, which prefixes were removed

  // "18 tensors from net.pt; took model; newly initialised: head.weight, head.bias".
  std::string text(const std::string& path) const;
};

// model.init_rename, each as {old, new}.
std::vector<std::pair<std::string, std::string>> rename_pairs(const ModelOptions& options);

// Patterns of the tensors that model.append_head adds; files of the model without it lack them.
std::vector<std::string> appended_heads(const ModelOptions& options);

// Copies the weights and buffers of options.init_from into the module, renamed by
// options.init_rename. init_from is a weights file, a checkpoint's folder, a run folder (the
// weights that weights_of_folder picks), or a folder of NVIDIA's Pix2PixHD. 8-bit weights of a
// whole model are expanded. Tensors that match options.init_skip, on either side, are left out.
// CheckpointError listing names and shapes of all others that are missing, unexpected or of another
// shape; then nothing was copied. A file may lack an appended head, and a Pix2PixHD folder the
// discriminators.
InitReport init_from_file(torch::nn::Module& module, const ModelOptions& options);

// The same for a state_dict already read; errors name it `path`. Tensors that match a pattern of
// `heads` may be missing on either side: those not in `state` keep their initial values, those not
// in the module are ignored.
InitReport init_from_state(torch::nn::Module& module, StateDict state, const ModelOptions& options,
                           const std::string& path, const std::vector<std::string>& heads);

}  // namespace tanren
