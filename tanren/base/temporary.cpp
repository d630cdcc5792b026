#include "tanren/base/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMark = ".tmp-";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kDigits = "0123456789";
constexpr size_t kRandom = 8;  // letters
constexpr int kTries = 100;

std::string random_letters() {
  std::random_device source;
  std::string letters(kRandom, ' ');
  for (char& letter : letters) letter = kLetters[source() % kLetters.size()];
  return letters;
}

bool has_only(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

// `<name>.tmp-<process>`
bool is_name_of_process(std::string_view name) {
  const size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos || mark == 0) return false;
  const std::string_view process = name.substr(mark + kMark.size());
  return !process.empty() && process.size() <= 10 && has_only(process, kDigits);
}

int open_new(const char* name) {
  const int file = ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return -1;
  // If this file system has no locks, remove_leftovers does not remove the file either. If another
  // process holds the lock, it is about to remove the file.
  const bool is_held = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  struct stat facts {};
  const bool is_gone =
      ::fstat(file, &facts) == 0 && facts.st_nlink == 0 && ::access(name, F_OK) != 0;
  if (!is_held && !is_gone) return file;
  ::close(file);  // another process took the file for a leftover before it was locked
  errno = EEXIST;
  return -1;
}

}  // namespace

fs::path temporary_name(const fs::path& path) {
  const std::string name = std::string(kMark) + path.filename().string() + "-" + random_letters();
  return path.parent_path() / name;
}

bool is_temporary_name(std::string_view name) {
  const bool is_marked = name.substr(0, kMark.size()) == kMark;
  if (!is_marked || name.size() < kMark.size() + 2 + kRandom) return is_name_of_process(name);
  const size_t dash = name.size() - kRandom - 1;
  return name[dash] == '-' && has_only(name.substr(dash + 1), kLetters);
}

fs::path make_temporary(const fs::path& path, const std::function<int(const char*)>& make) {
  for (int i = 0; i < kTries; ++i) {
    fs::path name = temporary_name(path);
    if (make(name.c_str()) >= 0) return name;
    if (errno != EEXIST) break;
  }
  return {};
}

int open_temporary(const fs::path& path, fs::path& temporary) {
  int file = -1;
  temporary = make_temporary(path, [&](const char* name) { return file = open_new(name); });
  return file;
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool is_file = fs::is_regular_file(entry.symlink_status(error));
    if (is_file && is_temporary_name(entry.path().filename().string())) {
      found.push_back(entry.path());
    }
  }
  for (const auto& path : found) {
    const int file = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(file);
  }
}

}  // namespace tanren
