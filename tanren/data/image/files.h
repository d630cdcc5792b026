// Lists picture files and checks them when a dataset is opened, and says what is wrong with them.
// Shared by the datasets of pictures.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/image/header.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// Whether the name has the extension of an image, in upper or lower case. The extension may be of
// any format, but only JPEG and PNG can be read.
bool has_image_extension(const std::filesystem::path& path);
bool is_hidden(const std::filesystem::path& path);  // its name begins with a dot
// Lists the image files below `folder`, recursively, as sorted paths relative to `root`. Hidden
// files are left out. Throws std::filesystem::filesystem_error.
std::vector<std::string> images_below(const std::filesystem::path& folder,
                                      const std::filesystem::path& root);

struct CheckedImage {
  std::string broken;  // why the file is unusable; empty: it is usable, the rest is set
  ImageHeader header;
  int64_t bytes = 0;
};
// Checks header and end of each file below `root`, on several threads.
std::vector<CheckedImage> check_image_files(const std::filesystem::path& root,
                                            const std::vector<std::string>& names,
                                            int64_t max_pixels);

// `broken` lists the unusable ones of `all` items, with reasons. `of` is the word for the items,
// "files" or "pairs". Does nothing if `broken` is empty. Otherwise throws DataError or, with
// options.broken "skip", logs one line.
void refuse_or_skip(const std::vector<std::string>& broken, size_t all, const std::string& of,
                    const SourceOptions& options, const std::string& what);

// The first few of `items`, joined, and how many more there are.
std::string first_few(const std::vector<std::string>& items);

}  // namespace tanren
