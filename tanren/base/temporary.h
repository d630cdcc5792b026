// Temporary names: a file, folder or link is made whole under a temporary name and then renamed.
// The names are unpredictable, and an existing entry with that name is neither opened nor followed.
// The writer of a temporary file holds a lock on it, so that the next start can recognise the files
// of a killed process. Called by all writers: file.cpp, checkpoints, exported weights, the run
// folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace tanren {

// A new name beside `path`: .tmp-<its name>-<8 random letters and digits>.
std::filesystem::path temporary_name(const std::filesystem::path& path);
// Whether `name` (no folder) is a temporary name, or <name>.tmp-<process> as older versions wrote.
bool is_temporary_name(std::string_view name);

// Calls `make` with new temporary names of `path` as long as it fails with EEXIST. `make` returns
// what open, mkdir and link return. Returns the name; on failure it is empty and errno is set.
std::filesystem::path make_temporary(const std::filesystem::path& path,
                                     const std::function<int(const char*)>& make);
// Makes a new file beside `path`, open for writing and locked. Returns its descriptor and sets
// `temporary` to its name; returns -1, with errno set, if it could not be made.
int open_temporary(const std::filesystem::path& path, std::filesystem::path& temporary);

// Removes temporary files of `folder` whose writers are gone. On a file system without locks they
// stay.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace tanren
