// DataPart: a hash of one part of a dataset (its labels, the names of its files). With the number of
// samples the parts tell whether a run goes on with the data that it began with, and whether ranks have
// the same. Where the data lie and when they were written counts nowhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct DataPart {
  std::string name;  // as it stands in an error text: "labels", "file names"
  uint64_t hash = 0;
};

// Type, shape and contents of a tensor on the CPU; of more than 64 MiB 1024 evenly spread stretches of
// 64 KiB.
DataPart part_of(const std::string& name, const at::Tensor& tensor);
DataPart part_of(const std::string& name, const std::vector<std::string>& texts);

// Files from which samples are made: their names below the folder that was named, and their sizes.
struct DataFile {
  std::string name;
  int64_t bytes = 0;
};
std::vector<DataPart> parts_of(const std::vector<DataFile>& files);

}  // namespace tanren
