// Paths of a config as absolute paths: relative ones begin at the folder where they were written.
// Called only by read_config.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace tanren {

inline void resolve(std::string& path, const std::filesystem::path& folder) {
  if (!path.empty() && std::filesystem::path(path).is_relative()) {
    path = std::filesystem::absolute(folder / path).lexically_normal().string();
  }
}

// Makes `name` a path if it begins with a dot, or if such a folder or .pt file exists.
inline void resolve_folder(std::string& name, const std::filesystem::path& folder) {
  std::error_code none;
  const bool is_file = name.find(".pt") != std::string::npos &&
                       std::filesystem::is_regular_file(folder / name, none);
  const bool is_path = !name.empty() && name.front() == '.';
  if (is_path || is_file || (!name.empty() && std::filesystem::is_directory(folder / name, none)))
    resolve(name, folder);
}

}  // namespace tanren
