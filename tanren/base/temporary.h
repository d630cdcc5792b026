// Temporary names: a file, folder or link is made whole under one and then renamed. Nobody can foresee
// them, and what stands under one already is neither opened nor followed. Whoever writes a temporary
// file holds a lock on it, so that the next start can tell what a killed process left behind.
// Called by all that write: file.cpp, checkpoints, the exported weights, the run folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace tanren {

// A new name beside `path`: .tmp-<its name>-<8 random letters and digits>.
std::filesystem::path temporary_name(const std::filesystem::path& path);
// Whether `name`, without its folder, is one; or <name>.tmp-<process>, as older versions wrote.
bool is_temporary_name(std::string_view name);

// Hands `make` one temporary name of `path` after the other while it says EEXIST. `make` returns what
// open, mkdir and link return. The name; empty, with errno, where it could not be made.
std::filesystem::path make_temporary(const std::filesystem::path& path,
                                     const std::function<int(const char*)>& make);
// A new file beside `path`, open for writing and locked by its writer: its descriptor, and its name in
// `temporary`. -1, with errno, where it could not be made.
int open_temporary(const std::filesystem::path& path, std::filesystem::path& temporary);

// Removes temporary files of `folder` whose writers are gone. One whose lock the file system does not
// tell of stays.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace tanren
