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

// Whether the name ends like an image's, in any case. Only JPEG and PNG are read, whatever it says.
bool has_image_extension(const std::filesystem::path& path);
bool is_hidden(const std::filesystem::path& path);  // its name begins with a dot
// Image files below `folder`, in depth, as paths relative to `root`, sorted; hidden ones are left
// out. Throws std::filesystem::filesystem_error.
std::vector<std::string> images_below(const std::filesystem::path& folder,
                                      const std::filesystem::path& root);

struct CheckedImage {
  std::string broken;  // why the file cannot be used; empty: it can, and the rest is filled in
  ImageHeader header;
  int64_t bytes = 0;
};
// Checks header and end of each file below `root`, on several threads.
std::vector<CheckedImage> check_image_files(const std::filesystem::path& root,
                                            const std::vector<std::string>& names,
                                            int64_t max_pixels);

// `broken` names what cannot be used, with its reasons, of `all` files or pairs (`of`). Does
// nothing if it is empty; else throws DataError or, with options.broken "skip", logs one line.
void refuse_or_skip(const std::vector<std::string>& broken, size_t all, const std::string& of,
                    const SourceOptions& options, const std::string& what);

// The first few of `items`, joined, and how many more there are.
std::string first_few(const std::vector<std::string>& items);

}  // namespace tanren
