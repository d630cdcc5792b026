// Packages: models that python/tanren_export.py compiled out of a torch.nn.Module and its loss, as
// folders of native code for forward and backward, weights and a manifest (docs/packages.md). A
// package is a program: load only one that you trust. Its code is loaded after its manifest, its
// version and its checksums were checked.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"

#include <cstdint>
#include <filesystem>

namespace tanren {

// The task of a package, with the weights that it was exported with. Parameters and buffers have
// their Python names. One phase, one objective: its forward computes the gradients, too, with the
// seeds of the step around it (base/loss_seeds.h), and then writes the buffers; its backward hands
// the gradients out, once. ConfigError for a folder that is no package for this program and
// machine, DataError at a batch that lacks a field, or has one of another dtype or size.
// NeedsValues in a dry run.
Task package_task(const std::filesystem::path& folder);

// The most samples that a package takes at once, and what their number is a multiple of.
struct PackageSamples {
  int64_t most = 1, multiple = 1;
};

// What the package in that folder takes. InputError if its manifest cannot be read.
PackageSamples samples_of_package(const std::filesystem::path& folder);

// The task of options.path.
Task package_kind(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
