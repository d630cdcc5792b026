#include "tanren/sweep/journal.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kFirstSum = 0xcbf29ce484222325;  // FNV-1a's offset

// The text that replaces the object's closing brace.
std::string sum_text(uint64_t sum) { return ",\"sum\":\"" + hash_text(sum) + "\"}"; }

struct ReadLines {
  std::vector<std::string> objects;
  int64_t bytes = 0;  // of whole lines
  uint64_t sum = kFirstSum;
};

ReadLines lines_in(const std::string& text, const fs::path& file) {
  ReadLines read;
  const size_t tail = sum_text(0).size();
  for (size_t at = 0;;) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) return read;
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    std::string object(line.substr(0, line.size() > tail ? line.size() - tail : 0));
    object += "}";
    read.sum = next_sum(read.sum, object);
    if (line.size() <= tail || line.substr(line.size() - tail) != sum_text(read.sum)) {
      throw InputError(fmt::format(
          "[sweep] {}:{} is not as it was written; take back what was edited, or begin another "
          "sweep in another folder",
          file.string(), read.objects.size() + 1));
    }
    read.objects.push_back(std::move(object));
    read.bytes = static_cast<int64_t>(at);
  }
}

[[noreturn]] void fail_to_write(const fs::path& file, int error) {
  throw RunError("[sweep] cannot write " + file.string() + " (" + std::strerror(error) +
                 "); free space or give it rights, and start the same again: it goes on");
}

// Removes the bytes written after `size`. If this fails, too, the journal is still valid: the next
// start cuts an incomplete line and reads a complete one.
void take_back(int descriptor, int64_t size) {
  const int result = ::ftruncate(descriptor, size);
  static_cast<void>(result);
}

}  // namespace

uint64_t next_sum(uint64_t sum, std::string_view object) {
  for (const char c : object) {
    sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return sum;
}

Journal::Journal(fs::path file) : path_(std::move(file)) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw InputError("[sweep] cannot open " + path_.string() + " (" + std::strerror(errno) +
                     "); check its folder's rights");
  }
  try {
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) {
        throw InputError("[sweep] another process writes " + path_.string() +
                         "; wait for it, or take another folder");
      }
      // Some network file systems have no locks; most sweeps there are alone in their folder.
      log("[sweep] cannot lock " + path_.string() + " (" + std::strerror(errno) +
          "), so nothing keeps a second process out of it; start no other there");
      break;
    }
    read_lines();
  } catch (...) {
    close();
    throw;
  }
}

void Journal::read_lines() {
  const std::string text = read_file(path_);
  ReadLines read = lines_in(text, path_);
  lines_ = std::move(read.objects);
  size_ = read.bytes;
  sum_ = read.sum;
  const bool is_torn = size_ < std::ssize(text);
  if (is_torn && ::ftruncate(descriptor_, size_) != 0) fail_to_write(path_, errno);
}

Journal::~Journal() { close(); }

Journal::Journal(Journal&& other) noexcept { *this = std::move(other); }

Journal& Journal::operator=(Journal&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  size_ = other.size_;
  sum_ = other.sum_;
  lines_ = std::move(other.lines_);
  return *this;
}

void Journal::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

// Forks share the lock, which ends with the last of them that closes the file.
void Journal::leave() { close(); }

std::vector<std::string> Journal::take_lines() { return std::exchange(lines_, {}); }

void Journal::append(std::string_view object, bool sync) {
  if (path_.empty()) return;
  const uint64_t sum = next_sum(sum_, object);
  const std::string line = std::string(object.substr(0, object.size() - 1)) + sum_text(sum) + "\n";
  std::string_view left = line;
  while (!left.empty()) {
    const int64_t at = size_ + std::ssize(line) - std::ssize(left);
    const ssize_t written = ::pwrite(descriptor_, left.data(), left.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      take_back(descriptor_, size_);
      fail_to_write(path_, error);
    }
    left.remove_prefix(static_cast<size_t>(written));
  }
  if (sync && ::fdatasync(descriptor_) != 0 && errno != EINVAL) {
    const int error = errno;
    take_back(descriptor_, size_);
    fail_to_write(path_, error);
  }
  size_ += std::ssize(line);
  sum_ = sum;
}

std::vector<std::string> read_journal(const fs::path& file) {
  return lines_in(read_file(file), file).objects;
}

}  // namespace tanren
