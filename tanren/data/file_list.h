// The files that a source of text or tokens consists of: one file, a folder, or what a shell pattern
// matches; chosen by name. Depends on the file names alone, so two sources with parts that do not
// overlap never share a file, on any machine.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct FileList {
  std::vector<std::filesystem::path> files;  // sorted by path
  std::vector<std::string> names;            // of each below its folder; of one named file: ""
  // Of the one file that the path names, the stretch [begin, end) of its tokens, as shares.
  double begin = 0, end = 1;
};

// The files of options.path. A folder is searched in depth: every regular file below it, also where a
// link leads to it; names that begin with a dot and links to folders are left out. A pattern (*, ?,
// [a-z], as glob(7)) may match files and folders. Of these the ones whose name, below the folder,
// matches `include` and not `exclude` and whose place (below) lies in `part`.
// DataError where nothing is left, naming what was looked at; ConfigError for choices that one file
// does not have.
FileList list_files(const SourceOptions& options, const std::string& what);

// Where in [0, 1) a name falls: 64-bit FNV-1a, mixed. The same on every machine, and evenly spread.
double place_of(const std::string& name);

}  // namespace tanren
