// Lists the files of a text or token source: one file, a folder, or the matches of a shell pattern,
// selected by name. The selection depends on file names only, so two sources whose parts do not
// overlap never share a file, on any machine.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct FileList {
  std::vector<std::filesystem::path> files;  // sorted by path
  std::vector<std::string> names;            // relative to the folder; "" for one named file
  // With one file: the range [begin, end) of its tokens that is used, as fractions of the file.
  double begin = 0, end = 1;
};

// Lists the files of options.path. A folder is searched recursively for regular files and links to
// them; names that begin with a dot and links to folders are left out. A pattern (*, ?, [a-z], as
// glob(7)) may match files and folders. A file is kept if its name below the folder matches
// `include` and not `exclude`, and its place (place_of) lies in `part`. With options.stream_split,
// empty files are dropped and only the files of one part of the split are kept, by the hashes of
// their names (split.h). A single file is cut instead, and evaluation gets its end. DataError
// naming the path if no file is left. ConfigError for `include` or `exclude` if the path names one
// file.
FileList list_files(const SourceOptions& options, const std::string& what);

// " in the evaluation part of data.split = 0.1", or the training part; empty without a split.
std::string split_part_text(const SourceOptions& options);

// Maps a name to [0, 1) by 64-bit FNV-1a, mixed. The same on every machine, and evenly spread.
double place_of(const std::string& name);

}  // namespace tanren
