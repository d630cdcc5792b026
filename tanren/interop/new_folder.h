// NewFolder: a new or empty folder in which files are written. Unless it is kept, what was made
// goes away again: the files that were named, the folder, and those above it that were not there.
// Nothing that others put there is touched. Called by python_folder.
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
  // The place of a file that is written next.
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
