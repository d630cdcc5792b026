#include "tanren/base/file.h"

#include "tanren/base/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace tanren {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw RunError("[file] cannot " + std::string(what) + " " + path.string() + " (" +
                 std::strerror(errno) + "); check its folder's rights and free space");
}

// Closes on every way out.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail(path, "open");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::string read_file(const fs::path& path) {
  if (fs::is_directory(path)) {
    throw InputError("[file] " + path.string() + " is a folder; name a file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw InputError("[file] cannot read " + path.string() + " (" + std::strerror(errno) +
                     "); check the path");
  }
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

void write_file(const fs::path& path, std::string_view bytes) {
  const fs::path temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  try {
    {
      const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
      while (!bytes.empty()) {
        const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(path, "write");
        bytes.remove_prefix(static_cast<size_t>(written));
      }
      if (::fsync(file.get()) != 0) fail(path, "flush");
    }
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "replace");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void sync_folder(const fs::path& folder) {
  const Descriptor directory(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(directory.get()) != 0) fail(folder, "flush");
}

}  // namespace tanren
