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

// Adds the manifest's fields to `inputs`, contiguous and in the manifest's dtypes. `trains`: a
// batch below the least size is an error too. DataError naming `package` and the problem if a field
// is missing or has another dtype, size or value than the graphs take.
void add_package_fields(const PackageManifest& manifest, const std::string& package,
                        const Batch& batch, bool trains, std::vector<at::Tensor>& inputs);

}  // namespace tanren
