#include "tanren/predict/growing_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

std::string state_text(const Progress& progress) {
  nlohmann::ordered_json json{{"model", progress.model},   {"settings", progress.settings},
                              {"source", progress.source}, {"rows", progress.rows},
                              {"broken", progress.broken}, {"bytes", progress.bytes},
                              {"batch", progress.batch},   {"computed", progress.computed}};
  if (progress.written > 0) json["written"] = progress.written;
  return json_text(json) + "\n";
}

// No value if the text is not a complete and sound state.
std::optional<Progress> state_of(const std::string& text) {
  const auto json = parse_json(text);
  if (!json.is_object()) return std::nullopt;
  Progress progress;
  const auto read = [&](const char* key, auto& value) {
    const auto found = json.find(key);
    if (found == json.end()) return false;
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      if (!found->is_string()) return false;
      value = found->template get<std::string>();
      return true;
    } else {
      if (!found->is_number_integer()) return false;
      value = found->template get<int64_t>();
      return value >= 0;
    }
  };
  const bool whole = read("model", progress.model) && read("settings", progress.settings) &&
                     read("source", progress.source) && read("rows", progress.rows) &&
                     read("broken", progress.broken) && read("bytes", progress.bytes) &&
                     read("batch", progress.batch);
  if (!whole || progress.batch <= 0) return std::nullopt;
  // Files of older versions lack these.
  const bool has_sound_rest = (!json.contains("computed") || read("computed", progress.computed)) &&
                              (!json.contains("written") || read("written", progress.written));
  return has_sound_rest ? std::optional(progress) : std::nullopt;
}

fs::path with_end(const fs::path& file, const char* end) { return file.string() + end; }

}  // namespace

GrowingFile::GrowingFile(fs::path file, const Progress& begin, bool replaced)
    : file_(std::move(file)),
      partial_(with_end(file_, ".partial")),
      state_(with_end(file_, ".partial.json")),
      part_(partial_),
      saved_(begin),
      replaced_(replaced) {
  refuse_file_that_is_there();
  hold();
  refuse_file_that_is_there();  // its writer may have been the last holder
  find_saved();
  appended_ = saved_;
}

std::vector<fs::path> GrowingFile::parts_of(const fs::path& file) {
  return {with_end(file, ".partial"), with_end(file, ".partial.json"),
          with_end(file, ".partial.whole")};
}

GrowingFile::Part::~Part() {
  if (descriptor < 0) return;
  if (is_new) ::unlink(path.c_str());  // while it is held
  ::close(descriptor);
}

void GrowingFile::refuse_file_that_is_there() const {
  std::error_code none;
  if (replaced_ || !fs::exists(fs::symlink_status(file_, none))) return;
  throw ConfigError("[predict] " + file_.string() +
                    " is there; name another file with --out, or replace it with --force");
}

// Opens and locks the part. The last holder may have renamed or removed what was opened here, so
// the lock counts only if the path still leads to it.
void GrowingFile::hold() {
  const auto refuse_kind = [&] {
    throw ConfigError("[predict] " + partial_.string() +
                      ", where rows lie until all are done, is no plain file; remove it");
  };
  constexpr int kMostTries = 100;
  for (int tries = 0; tries < kMostTries; ++tries) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    const int descriptor = ::open(partial_.c_str(), kFlags, 0666);
    if (descriptor < 0 && errno == ELOOP) refuse_kind();  // a link
    if (descriptor < 0) fail("write", errno);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor);
      throw InputError("[predict] another process writes " + partial_.string() +
                       "; wait for it, or name another file with --out");
    }
    struct stat held = {}, named = {};
    if (::fstat(descriptor, &held) != 0 || !S_ISREG(held.st_mode)) {
      ::close(descriptor);
      refuse_kind();
    }
    const bool is_named = ::lstat(partial_.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
                          held.st_dev == named.st_dev;
    // A process that is killed between link() and unlink() leaves a whole file that is also the
    // part. A new part is then made, because that whole file must stay as it is, whatever its name
    // is now.
    const bool is_shared = held.st_nlink > 1 && replaced_;
    if (is_named && is_shared && ::unlink(partial_.c_str()) != 0) {
      const int error = errno;
      ::close(descriptor);
      fail("replace", error);
    }
    if (is_named && !is_shared) {
      part_.descriptor = descriptor;
      part_.is_new = held.st_size == 0;
      return;
    }
    ::close(descriptor);
  }
  throw InputError("[predict] other processes keep replacing " + partial_.string() +
                   "; end them, or name another file with --out");
}

// Takes over the rows that an earlier start left. If the part is empty, the state is ignored: it
// may count rows of a part that was renamed or removed.
void GrowingFile::find_saved() {
  if (part_.is_new) return;
  struct stat held = {};
  if (::fstat(part_.descriptor, &held) != 0) fail("read", errno);
  std::error_code none;
  const auto found =
      fs::exists(state_, none) ? state_of(read_file(state_)) : std::optional<Progress>();
  std::string problem;
  if (!found || held.st_size < found->bytes) {
    problem = "is there, and nothing says what it was made from";
  } else if (found->rows == 0) {
    return;
  } else if (found->model != saved_.model) {
    problem = "was begun with another model";
  } else if (found->settings != saved_.settings) {
    problem = "was begun with other settings";
  } else {
    saved_ = *found;
  }
  if (!problem.empty() && !replaced_) {
    throw ConfigError("[predict] " + partial_.string() + " " + problem + "; remove it and " +
                      state_.string() + ", or begin again with --force");
  }
}

bool GrowingFile::begins_again(const Progress& begin) {
  if (!replaced_) return false;
  saved_ = appended_ = begin;
  return true;
}

void GrowingFile::fail(const std::string& what, int error) const {
  const std::string rows =
      saved_.rows > 0 ? fmt::format("it goes on after row {}", saved_.rows) : "it begins again";
  throw InputError(
      fmt::format("[predict] cannot {} {} ({}); make room or fix its rights, and give "
                  "the same command: {}",
                  what, partial_.string(), std::strerror(error), rows));
}

void GrowingFile::open() {
  // The state is saved before the bytes change: a file that is longer than its state says is
  // harmless.
  if (saved_.rows == 0) save();
  if (::ftruncate(part_.descriptor, saved_.bytes) != 0) fail("write", errno);
  if (::lseek(part_.descriptor, saved_.bytes, SEEK_SET) < 0) fail("write", errno);
  saved_at_ = std::chrono::steady_clock::now();
}

void GrowingFile::write_all(const std::string& rows) {
  size_t done = 0;
  while (done < rows.size()) {
    const ssize_t written = ::write(part_.descriptor, rows.data() + done, rows.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      try {
        save();
      } catch (const InputError&) {  // what was saved before still counts
      }
      fail("write", error);
    }
    done += static_cast<size_t>(written);
  }
}

void GrowingFile::append(const std::string& rows, Progress after) {
  write_all(rows);
  after.bytes = appended_.bytes + static_cast<int64_t>(rows.size());
  appended_ = std::move(after);
  constexpr auto kBetweenSaves = std::chrono::seconds(1);
  if (std::chrono::steady_clock::now() - saved_at_ >= kBetweenSaves) save();
}

void GrowingFile::save() {
  if (::fsync(part_.descriptor) != 0) fail("flush", errno);
  try {
    write_file(state_, state_text(appended_));
  } catch (const RunError& error) {
    throw InputError(error.what());
  }
  part_.is_new = false;  // the state names its rows now
  saved_ = appended_;
  saved_at_ = std::chrono::steady_clock::now();
}

void GrowingFile::leave() {
  if (appended_.rows > 0) return save();
  std::error_code none;
  fs::remove(partial_, none);
  fs::remove(state_, none);
}

// Gives `whole` the name of the file.
void GrowingFile::give_name(const fs::path& whole) {
  // Does not use the C library's rename, which replaces an existing file.
  const auto rename_to_nothing = [&] {
    if (::renameat2(AT_FDCWD, whole.c_str(), AT_FDCWD, file_.c_str(), RENAME_NOREPLACE) == 0) {
      return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) return errno;  // these: the file system lacks it
    if (::link(whole.c_str(), file_.c_str()) == 0) {
      ::unlink(whole.c_str());
      return 0;
    }
    struct stat there = {};  // some lack links, too
    if (errno == EEXIST || ::lstat(file_.c_str(), &there) == 0) return EEXIST;
    return ::rename(whole.c_str(), file_.c_str()) == 0 ? 0 : errno;
  };
  const int error = !replaced_                                    ? rename_to_nothing()
                    : ::rename(whole.c_str(), file_.c_str()) == 0 ? 0
                                                                  : errno;
  if (error == EEXIST) {
    throw InputError("[predict] " + file_.string() +
                     " was made by somebody else meanwhile and is kept; all rows lie in " +
                     partial_.string() + "; move the file away and give the same command");
  }
  if (error != 0) fail("rename", error);
}

void GrowingFile::finish(const Turn& turn) {
  save();
  if (turn) {
    const fs::path whole = with_end(file_, ".partial.whole");
    try {
      turn(partial_, whole);
      give_name(whole);
    } catch (const Error& failed) {
      ::unlink(whole.c_str());
      throw InputError(failed.what());
    }
    ::unlink(partial_.c_str());
  } else {
    give_name(partial_);
  }
  ::unlink(state_.c_str());
  sync_folder(file_.has_parent_path() ? file_.parent_path() : fs::path("."));
}

}  // namespace tanren
