// DataPart: a hash of one part of a dataset (its labels, the names of its files). Together with the
// number of samples, the parts show whether a resumed run has the data that it began with, and
// whether all ranks have the same data. Location and modification time of the data do not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct DataPart {
  std::string name;  // as error texts show it: "labels", "file names"
  uint64_t hash = 0;
};

// Hashes type, shape and contents of a tensor on the CPU. Above 64 MiB, only 1024 evenly spread
// stretches of 64 KiB are hashed.
DataPart part_of(const std::string& name, const at::Tensor& tensor);
DataPart part_of(const std::string& name, const std::vector<std::string>& texts);

// A file from which samples are made: its name below the configured folder, and its size.
struct DataFile {
  std::string name;
  int64_t bytes = 0;
};
std::vector<DataPart> parts_of(const std::vector<DataFile>& files);

}  // namespace tanren
