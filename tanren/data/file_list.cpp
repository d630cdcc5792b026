#include "tanren/data/file_list.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/split.h"

#include <algorithm>
#include <system_error>

#include <glob.h>

namespace tanren {

namespace fs = std::filesystem;

namespace {

struct Candidate {
  fs::path path;
  std::string name;  // relative to the folder that it was found in
};

std::vector<fs::path> expanded(const std::string& pattern) {
  glob_t found{};
  std::vector<fs::path> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

bool hidden(const fs::path& path) { return path.filename().string().front() == '.'; }

void add_below(const fs::path& folder, const std::string& what, std::vector<Candidate>& found) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code no_target;
    if (hidden(at->path())) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file(no_target)) {
      found.push_back({at->path(), at->path().lexically_relative(folder).generic_string()});
    }
  }
  if (!error) return;
  throw DataError(fmt::format("[{}] cannot search {} ({}); check its permissions", what,
                              folder.string(), error.message()));
}

std::string choices(const SourceOptions& options) {
  std::string text;
  if (!options.include.empty()) text += ", include [" + join(options.include) + "]";
  if (!options.exclude.empty()) text += ", exclude [" + join(options.exclude) + "]";
  if (!options.part.empty()) {
    text += fmt::format(", part [{}, {})", to_text(options.part[0]), to_text(options.part[1]));
  }
  return text.empty() ? text : " with" + text.substr(1);
}

FileList one_file(const SourceOptions& options, const std::string& what) {
  if (!options.include.empty() || !options.exclude.empty()) {
    throw ConfigError("[" + what + "] path names one file, " + options.path +
                      "; include and exclude choose among the files of a folder: drop them");
  }
  FileList list{{options.path}, {""}};
  if (!options.part.empty()) {
    list.begin = options.part[0];
    list.end = options.part[1];
  }
  return list;
}

FileList chosen_files(const SourceOptions& options, const std::string& what) {
  std::error_code error;
  if (fs::is_regular_file(options.path, error)) return one_file(options, what);
  const std::vector<fs::path> roots = fs::exists(options.path, error)
                                          ? std::vector<fs::path>{options.path}
                                          : expanded(options.path);
  std::vector<Candidate> found;
  for (const auto& root : roots) {
    if (fs::is_directory(root, error)) {
      add_below(root, what, found);
    } else if (fs::is_regular_file(root, error)) {
      found.push_back({root, root.filename().string()});
    }
  }
  if (found.empty()) {
    throw DataError(fmt::format("[{}] {} {}; name a file, a folder of files or a pattern", what,
                                options.path,
                                roots.empty() ? "does not exist and as a pattern matches nothing"
                                              : "holds no regular file"));
  }
  FileList list;
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  for (auto& [path, name] : found) {
    if (!options.include.empty() && !matches_any(options.include, name)) continue;
    if (matches_any(options.exclude, name)) continue;
    const double place = place_of(name);
    if (!options.part.empty() && !(place >= options.part[0] && place < options.part[1])) continue;
    list.files.push_back(std::move(path));
    list.names.push_back(std::move(name));
  }
  if (list.files.empty()) {
    throw DataError(fmt::format("[{}] none of the {} files of {} is chosen{}; widen the choice",
                                what, found.size(), options.path, choices(options)));
  }
  return list;
}

// Removes empty files, which could become a part of the split without a token. If all files are
// empty, they stay.
void drop_empty(FileList& list) {
  FileList kept;
  for (size_t i = 0; i < list.files.size(); ++i) {
    std::error_code unknown;
    if (fs::file_size(list.files[i], unknown) == 0 && !unknown) continue;
    kept.files.push_back(list.files[i]);
    kept.names.push_back(list.names[i]);
  }
  if (!kept.files.empty() && kept.files.size() < list.files.size()) list = std::move(kept);
}

// Keeps the part that options.stream_split and options.takes_eval_part name.
void keep_part(FileList& list, const SourceOptions& options, const std::string& what) {
  drop_empty(list);
  if (list.files.size() == 1) {
    const double border = list.end - options.stream_split * (list.end - list.begin);
    (options.takes_eval_part ? list.begin : list.end) = border;
    return;
  }
  std::vector<uint64_t> hashes;
  for (const std::string& name : list.names) hashes.push_back(split_hash(name));
  FileList kept;
  for (const int64_t row : split_rows(hashes, {}, options.stream_split, options.takes_eval_part)) {
    kept.files.push_back(list.files[static_cast<size_t>(row)]);
    kept.names.push_back(list.names[static_cast<size_t>(row)]);
  }
  if (kept.files.empty()) {
    throw DataError(fmt::format(
        "[{}] the {} files of {} have one name, {}, and data.split divides by name; rename some",
        what, list.files.size(), options.path, list.names.front()));
  }
  list = std::move(kept);
}

}  // namespace

double place_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  // The finaliser of splitmix64: similar names end far apart.
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
  hash ^= hash >> 31;
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

std::string split_part_text(const SourceOptions& options) {
  if (options.stream_split <= 0) return "";
  return fmt::format(" in the {} part of data.split = {}",
                     options.takes_eval_part ? "evaluation" : "training",
                     to_text(options.stream_split));
}

FileList list_files(const SourceOptions& options, const std::string& what) {
  FileList list = chosen_files(options, what);
  if (options.stream_split > 0) keep_part(list, options, what);
  return list;
}

}  // namespace tanren
