#include "tanren/metrics/append_file.h"

#include "tanren/base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tanren {

AppendFile::AppendFile(std::filesystem::path file)
    : path_(std::move(file)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    throw DiskError("[metrics] cannot open " + path_.string() + ": " + std::strerror(errno) +
                    "; correct the folder's rights or free the disk");
  }
}

AppendFile::~AppendFile() { ::close(descriptor_); }

int AppendFile::write(bool sync) {
  size_t written = 0;
  while (written < waiting_.size()) {
    const auto count = ::write(descriptor_, waiting_.data() + written, waiting_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int code = count < 0 ? errno : ENOSPC;
      keep_whole(written);
      return code;
    }
    written += static_cast<size_t>(count);
  }
  drop();
  // Pipes, and files on some read-only or network systems, cannot be flushed.
  if (sync && ::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) return errno;
  return 0;
}

void AppendFile::drop() {
  waiting_.clear();
  ends_.clear();
}

void AppendFile::keep_whole(size_t written) {
  const auto next = std::upper_bound(ends_.begin(), ends_.end(), written);
  const size_t whole = next == ends_.begin() ? 0 : *(next - 1);
  struct stat facts {};
  if (written > whole && ::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode)) {
    [[maybe_unused]] const int result =
        ::ftruncate(descriptor_, facts.st_size - static_cast<off_t>(written - whole));
  }
  ends_.erase(ends_.begin(), next);
  for (auto& end : ends_) end -= whole;
  waiting_.erase(0, whole);
}

}  // namespace tanren
