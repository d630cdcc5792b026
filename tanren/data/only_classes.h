// Keeps only the samples of chosen classes: data.*.only_classes for data in memory. Called by csv
// and tensors.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/tensor_map.h"

#include <string>
#include <vector>

namespace tanren {

// Keeps the rows (dim 0 of every field) whose "labels", int64 [n], are among `only`, in their
// order, and returns their numbers. Class i is then only[i] and has that name. ConfigError if an
// entry of `only` is not a whole number or the labels are not classes; DataError if a class has no
// sample. Error texts begin with `where`.
std::vector<int64_t> keep_classes(TensorMap& fields, DataInfo& info,
                                  const std::vector<std::string>& only, const std::string& where);

}  // namespace tanren
