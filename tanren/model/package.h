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
// their Python names. The task has one phase and one objective. Its forward also computes the
// gradients, with the seeds of the current step (base/loss_seeds.h), and then writes the buffers.
// Its backward returns these gradients and may be called once. ConfigError if the folder is not a
// package for this program and machine. DataError if a batch lacks a field, or has one of another
// dtype or size. NeedsValues in a dry run.
Task package_task(const std::filesystem::path& folder);

// Limits on a package's batch: it has at most `most` samples, and their number is a multiple of
// `multiple`.
struct PackageSamples {
  int64_t most = 1, multiple = 1;
};

// The limits of the package in that folder. InputError if its manifest cannot be read.
PackageSamples samples_of_package(const std::filesystem::path& folder);

// The task of options.path.
Task package_kind(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
