#include "tanren/post_training/quantize_results.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/temporary.h"
#include "tanren/interop/export.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kReports[] = {"quantize.txt", "quantize.json", "quantize.html"};
constexpr const char* kAside = "quantize";  // the name that the temporary folder is made of

// Holds a lock on a folder, unless another process has it or the file system has no locks.
class LockedFolder {
 public:
  LockedFolder(const fs::path& folder, bool waits)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const int how = waits ? LOCK_EX : LOCK_EX | LOCK_NB;
    while (folder_ >= 0 && !is_locked_) {
      is_locked_ = ::flock(folder_, how) == 0;
      is_lost_ = !is_locked_ && errno == EWOULDBLOCK;
      if (!is_locked_ && errno != EINTR) break;
    }
    struct stat held = {}, named = {};
    const bool is_there = ::stat(folder.c_str(), &named) == 0;
    const bool is_other = folder_ >= 0 && ::fstat(folder_, &held) == 0 &&
                          (held.st_dev != named.st_dev || held.st_ino != named.st_ino);
    is_lost_ = is_lost_ || !is_there || is_other;
  }
  ~LockedFolder() {
    if (folder_ >= 0) ::close(folder_);
  }
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;

  bool is_locked() const { return is_locked_; }
  bool is_lost() const { return is_lost_; }  // another process holds or has removed the folder

 private:
  int folder_;
  bool is_locked_ = false;
  bool is_lost_ = false;
};

// The temporary folder in which one process makes its results. The destructor removes it, unless it
// is kept.
class AsideFolder {
 public:
  explicit AsideFolder(const fs::path& out) {
    constexpr int kMostTries = 100;
    for (int tries = 0; tries < kMostTries; ++tries) {
      path_ = make_temporary(out / kAside, [](const char* name) { return ::mkdir(name, 0777); });
      if (path_.empty()) break;
      lock_.emplace(path_, /*waits=*/false);
      if (!lock_->is_lost()) return;  // else: another process took it for a leftover
    }
    throw ConfigError("[quantize] cannot make a folder in " + out.string() + ": " +
                      std::strerror(errno) + "; name another one with --out");
  }
  ~AsideFolder() {
    std::error_code none;
    if (!is_kept_) fs::remove_all(path_, none);
  }
  AsideFolder(const AsideFolder&) = delete;
  AsideFolder& operator=(const AsideFolder&) = delete;

  const fs::path& path() const { return path_; }
  void keep(bool is_kept) { is_kept_ = is_kept; }
  bool is_kept() const { return is_kept_; }

 private:
  fs::path path_;
  std::optional<LockedFolder> lock_;
  bool is_kept_ = false;
};

// Removes the temporary folders of processes that are gone.
void remove_asides(const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(out, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = name.starts_with(std::string(".tmp-") + kAside + "-");
    const bool is_folder = fs::is_directory(entry.symlink_status(error));
    if (is_ours && is_folder && is_temporary_name(name)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) {
    const LockedFolder folder(path, /*waits=*/false);
    if (folder.is_locked()) fs::remove_all(path, error);
  }
}

void make_result_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  throw ConfigError("[quantize] cannot make the folder " + folder.string() + ": " +
                    error.message() + "; name another one with --out");
}

void check_replaced(const fs::path& file, const std::error_code& error) {
  if (!error) return;
  throw RunError("[quantize] cannot replace " + file.string() + ": " + error.message() +
                 "; move it away, or name another folder with --out");
}

// Returns whether the file existed.
bool remove_result(const fs::path& file) {
  std::error_code error;
  const bool was_there = fs::remove(file, error);
  check_replaced(file, error);
  return was_there;
}

// Moves the files in `aside` into their places. `aside` is kept from the first removal of an
// earlier file until all files are moved.
void replace_results(const fs::path& out, bool has_model, AsideFolder& aside) {
  const auto take_place = [&](const char* name) {
    std::error_code error;
    fs::rename(aside.path() / name, out / name, error);
    check_replaced(out / name, error);
  };
  for (const char* name : kReports) {
    if (remove_result(out / name)) aside.keep(true);
  }
  sync_folder(out);
  if (has_model) {
    take_place(kWholeFile);
    aside.keep(true);
  } else if (remove_result(out / kWholeFile)) {
    aside.keep(true);
  }
  sync_folder(out);
  for (const char* name : kReports) take_place(name);
  sync_folder(out);
  aside.keep(false);
}

}  // namespace

fs::path result_folder(const QuantizeInput& input, const fs::path& file) {
  fs::path out = input.out.empty() ? file.parent_path() / "quantized" : input.out;
  std::error_code none;
  if (fs::exists(out / "config.toml", none) || fs::exists(out / "checkpoints", none) ||
      fs::equivalent(out / kWholeFile, file, none)) {
    throw ConfigError("[quantize] " + out.string() +
                      " has the model itself, or is the folder of a run; name another one with "
                      "--out");
  }
  const auto check_absent = [&](const char* name) {
    if (input.replaces || !fs::exists(out / name, none)) return;
    throw ConfigError("[quantize] " + (out / name).string() +
                      " is there; replace it with --force, or name another folder with --out");
  };
  check_absent(kWholeFile);
  for (const char* name : kReports) check_absent(name);
  fs::path above = fs::absolute(out);
  while (!fs::exists(above, none) && above.has_relative_path()) above = above.parent_path();
  if (!fs::is_directory(above, none) || ::access(above.c_str(), W_OK) != 0) {
    throw ConfigError("[quantize] cannot write into " + out.string() + ", since " + above.string() +
                      " is no folder that this user may write to; name another one with --out");
  }
  return out;
}

void write_results(const fs::path& out, const QuantizeReport& report,
                   const std::function<void(const fs::path&)>& write_model) {
  make_result_folder(out);
  AsideFolder aside(out);
  if (write_model) write_model(aside.path() / kWholeFile);
  write_file(aside.path() / "quantize.txt", quantize_text_report(report));
  write_file(aside.path() / "quantize.json", quantize_json_report(report) + "\n");
  write_file(aside.path() / "quantize.html", quantize_html_report(report));
  const LockedFolder alone(out, /*waits=*/true);  // two processes do not mix what they made
  try {
    replace_results(out, write_model != nullptr, aside);
  } catch (const Error& error) {
    if (!aside.is_kept()) throw;
    throw RunError(
        fmt::format("{}; what was made is kept in {}", error.what(), aside.path().string()));
  }
  remove_asides(out);
}

}  // namespace tanren
