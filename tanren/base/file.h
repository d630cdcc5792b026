// Files that are either whole or absent: written to a temporary name, flushed, renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct OpenFile {
  std::ifstream stream;  // binary, at the start
  uint64_t size = 0;     // bytes; 0 if the system does not report it (pipes, /proc)
  std::filesystem::path path;

  // Reads up to `most` bytes into `to` and returns how many. Fewer than `most` means the end of the
  // file, and `stream` is false from then on. A read error of the disk throws InputError.
  size_t read(char* to, size_t most);
};

// Opens for reading; InputError naming the path and the reason.
OpenFile open_file(const std::filesystem::path& path);
// The file's bytes; InputError naming the path and the reason.
std::string read_file(const std::filesystem::path& path);
// Writes `path` atomically: temporary name beside it, fsync, rename, fsync of the folder.
// On failure the old file is untouched and the temporary one gone. Throws RunError.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// The same for pieces, written in order without joining them in memory.
void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces);
// The same for a stream: `produce` calls `write` with one piece after the other.
using Write = std::function<void(std::string_view)>;
void write_file(const std::filesystem::path& path,
                const std::function<void(const Write&)>& produce);
// Flushes a folder's entries (after a rename in it).
void sync_folder(const std::filesystem::path& folder);

}  // namespace tanren
