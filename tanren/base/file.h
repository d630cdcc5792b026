// Files that are either whole or absent: written to a temporary name, flushed, renamed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tanren {

// The file's bytes; InputError naming the path and the reason.
std::string read_file(const std::filesystem::path& path);
// Writes `path` atomically: temporary name beside it, fsync, rename, fsync of the folder.
// On failure the old file is untouched and the temporary one gone. Throws RunError.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// Flushes a folder's entries (after a rename in it).
void sync_folder(const std::filesystem::path& folder);

}  // namespace tanren
