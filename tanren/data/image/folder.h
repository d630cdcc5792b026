// ImageFolder: the files of a folder that has one folder of images per class, as torchvision's
// ImageFolder lays them out. Invariant: classes and files are in the order of their names' bytes, and
// every file listed has been seen to be a complete JPEG or PNG. Called when a dataset is opened.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct ImageFolder {
  struct File {
    std::string name;  // "cat/1.jpg", below options.path
    int64_t label = 0;
    int64_t bytes = 0;
  };
  std::vector<std::string> classes;
  std::vector<File> files;
};

// Lists options.path and checks each file's header and end, on several threads. Folders and files
// whose name starts with a dot, and files that have no image's extension, are passed over. With
// `train` the labels are those of its classes. DataError for what is no such folder, fewer than two
// classes to train on, a class without images, classes that `train` lacks, and, unless options.broken
// is "skip" (then it logs one line), for files that are broken.
ImageFolder open_image_folder(const SourceOptions& options, const std::string& what,
                              const DataInfo* train);

// The first few of `items`, joined, and how many more there are.
std::string first_few(const std::vector<std::string>& items);

}  // namespace tanren
