#include "tanren/formats/mapped_file.h"

#include "tanren/base/error.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tanren {

std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const auto fail = [&](int code) {
    throw InputError("[file] cannot read " + path.string() + " (" + std::strerror(code) +
                     "); check the path and its permissions");
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(errno);
  struct stat facts {};
  int code = ::fstat(file, &facts) != 0 ? errno : S_ISREG(facts.st_mode) ? 0 : EISDIR;
  void* data = nullptr;
  const auto size = static_cast<size_t>(facts.st_size);
  if (code == 0 && size > 0) {
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    if (data == MAP_FAILED) code = errno;
  }
  ::close(file);
  if (code != 0) fail(code);
  return std::shared_ptr<MappedFile>(new MappedFile(static_cast<char*>(data), size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(data_, size_);
}

}  // namespace tanren
