// ImageFolder: the files of a folder that has one folder of images per class, as torchvision's
// ImageFolder lays them out. Invariants: files are sorted by the bytes of their names. Classes are
// too, unless only_classes or the training data number them. Every listed file is a complete JPEG
// or PNG. Called when a dataset is opened.
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
// whose name starts with a dot, and files without an image extension, are skipped. With `train`,
// labels are its class numbers. DataError for a path without class folders, fewer than two classes
// to train on, a class without images, classes that `train` lacks, and broken files. If
// options.broken is "skip", broken files are dropped instead, with one log line.
ImageFolder open_image_folder(const SourceOptions& options, const std::string& what,
                              const DataInfo* train);

}  // namespace tanren
