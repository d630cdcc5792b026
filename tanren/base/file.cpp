#include "tanren/base/file.h"

#include "tanren/base/error.h"
#include "tanren/base/temporary.h"
#include "tanren/base/text.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw DiskError(fmt::format("[file] cannot {} {} ({}); check its folder's rights and free space",
                              what, path.string(), std::strerror(errno)));
}

// Closes the descriptor when it is destroyed.
class Descriptor {
 public:
  // `opened`: the result of open for `path`.
  Descriptor(int opened, const fs::path& path) : fd_(opened) {
    if (fd_ < 0) fail(path, "open");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int descriptor, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

OpenFile open_file(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw InputError("[file] " + path.string() + " is a folder; name a file");
  }
  OpenFile file{std::ifstream(path, std::ios::binary), 0, path};
  if (!file.stream) {
    throw InputError("[file] cannot read " + path.string() + " (" + std::strerror(errno) +
                     "); check the path");
  }
  const auto size = fs::file_size(path, error);
  if (!error) file.size = size;
  return file;
}

size_t OpenFile::read(char* to, size_t most) {
  stream.read(to, static_cast<std::streamsize>(most));
  if (stream.bad()) {
    throw InputError("[file] cannot read " + path.string() + " to its end (" +
                     std::strerror(errno) + "); check the disk");
  }
  return static_cast<size_t>(stream.gcount());
}

std::string read_file(const fs::path& path) {
  OpenFile file = open_file(path);
  std::string bytes(file.size, '\0');
  bytes.resize(file.read(bytes.data(), bytes.size()));
  std::array<char, 1 << 14> more;  // pipes and /proc do not report their size
  while (file.stream) bytes.append(more.data(), file.read(more.data(), more.size()));
  return bytes;
}

void write_file(const fs::path& path, std::string_view bytes) {
  write_file(path, std::vector<std::string_view>{bytes});
}

void write_file(const fs::path& path, const std::vector<std::string_view>& pieces) {
  write_file(path, [&](const Write& write) {
    for (const auto& piece : pieces) write(piece);
  });
}

void write_file(const fs::path& path, const std::function<void(const Write&)>& produce) {
  fs::path temporary;
  // Stays open until it is renamed: a closed temporary file would look like a leftover.
  const Descriptor file(open_temporary(path, temporary), path);
  try {
    produce([&](std::string_view piece) { write_all(file.get(), piece, path); });
    if (::fsync(file.get()) != 0) fail(path, "flush");
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "replace");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void sync_folder(const fs::path& folder) {
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder);
  // Some network and FUSE file systems cannot flush a folder; they report EINVAL.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) fail(folder, "flush");
}

}  // namespace tanren
