// Keeps the samples of some classes: data.*.only_classes for data that lies in memory. Called by csv
// and tensors.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/tensor_map.h"

#include <string>
#include <vector>

namespace tanren {

// Leaves the rows (dim 0 of every field) whose "labels", int64 [n], are among `only`, in their order;
// class i is then only[i], and bears that name. ConfigError where one of `only` is no whole number or
// the labels are no classes, DataError where a class has no sample; `where` begins both.
void keep_classes(TensorMap& fields, DataInfo& info, const std::vector<std::string>& only,
                  const std::string& where);

}  // namespace tanren
