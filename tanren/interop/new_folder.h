// NewFolder: a new or empty folder in which files are written. Unless keep() is called, the
// destructor removes what was made: the named files, the folder, and the folders above it that were
// missing. It removes nothing that others put there. Called by python_folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

class NewFolder {
 public:
  // ConfigError if it holds something, InputError if it cannot be made.
  explicit NewFolder(std::filesystem::path folder);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  // Names a file that the caller writes next, and returns its path.
  std::filesystem::path place_of(const std::string& name);
  void keep() { is_kept_ = true; }

 private:
  void make_folders();
  void remove_made() const;

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;  // in their order: folders from the outermost, files
  bool is_kept_ = false;
};

}  // namespace tanren
