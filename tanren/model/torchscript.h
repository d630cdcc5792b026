// Models out of TorchScript files (torch.jit.script or trace, then save). libtorch interprets the
// file's forward operator by operator, so that autograd, autocast and the allocator work as for any
// model. A file is a program: load only files that you trust.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <memory>
#include <string>

#include <torch/nn/module.h>

namespace tanren {

// The modules of a file, by its names. Parameters and buffers are the file's own tensors, and a
// module's train() reaches the script.
std::shared_ptr<torch::nn::Module> load_script(const std::filesystem::path& file);

// XXH3 of the file that load_script or torchscript_task made the module from, 16 hexadecimal
// digits. Empty for a module that is not from a file.
std::string script_checksum(const torch::nn::Module& module);

// The task of the file options.path. Its losses are those of supervised(); with model.task =
// "next_token" the loss is a cross-entropy of each token's scores, [n, T, tokens]. forward's first
// argument is the field "inputs", and the others are the fields of the same names. An argument
// without such a field keeps its default; "labels" keeps its default if it has one. forward returns
// a tensor, a tuple that begins with one, or a dictionary with one as "logits". ConfigError if the
// file cannot be read or has no such forward. A batch gives a ConfigError if an argument has
// neither field nor default. NeedsValues in a dry run.
Task torchscript_task(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
