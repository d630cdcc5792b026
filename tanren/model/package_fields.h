// The fields of a batch as the graphs of a package take them, checked on the host: compiled code
// checks nothing. Called by package.cpp.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/model/package_manifest.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// The dtype of a word of the manifest.
at::ScalarType package_type(std::string_view word);
// The sizes that the graphs take, in words: "batch at least 2, tokens 8 to 64".
std::string package_sizes(const PackageManifest& manifest);

// Adds the manifest's fields to `inputs`, contiguous, in its dtypes. `trains`: the graph wants the
// least batch, too. DataError naming `package` and what a field lacks or has too much of.
void add_package_fields(const PackageManifest& manifest, const std::string& package,
                        const Batch& batch, bool trains, std::vector<at::Tensor>& inputs);

}  // namespace tanren
