#include "tanren/interop/new_folder.h"

#include "tanren/base/error.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

NewFolder::NewFolder(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) throw InputError("[convert] the folder to write has no name; give it one");
  std::error_code error;
  if (fs::exists(folder_, error) &&
      (!fs::is_directory(folder_, error) || !fs::is_empty(folder_, error))) {
    throw ConfigError("[convert] " + folder_.string() +
                      " is there and holds something; name a new folder");
  }
  try {
    make_folders();
  } catch (...) {
    remove_made();
    throw;
  }
}

NewFolder::~NewFolder() {
  if (!is_kept_) remove_made();
}

fs::path NewFolder::place_of(const std::string& name) {
  made_.push_back(folder_ / name);
  return made_.back();
}

// Only folders that this call creates count as made. A link to a missing target is refused, because
// it exists and is not ours.
void NewFolder::make_folders() {
  std::error_code error;
  std::vector<fs::path> missing;  // the innermost first
  for (fs::path above = folder_; !above.empty() && !fs::exists(above, error);) {
    if (fs::is_symlink(above, error)) {
      throw InputError("[convert] " + above.string() +
                       " is a link to nothing; make its target, or name another folder");
    }
    missing.push_back(above);
    above = above.parent_path();
  }
  for (; !missing.empty(); missing.pop_back()) {
    if (fs::create_directory(missing.back(), error)) {
      made_.push_back(missing.back());
    } else if (error) {
      throw InputError("[convert] cannot make the folder " + folder_.string() + " (" +
                       error.message() + "); name another");
    }
  }
}

// Folders that are not empty by now stay.
void NewFolder::remove_made() const {
  std::error_code error;
  std::for_each(made_.rbegin(), made_.rend(), [&](const fs::path& one) { fs::remove(one, error); });
}

}  // namespace tanren
