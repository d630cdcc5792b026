#include "tanren/predict/growing_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

std::string state_text(const Progress& progress) {
  const nlohmann::ordered_json json{{"model", progress.model},   {"settings", progress.settings},
                                    {"source", progress.source}, {"rows", progress.rows},
                                    {"broken", progress.broken}, {"bytes", progress.bytes},
                                    {"batch", progress.batch}};
  return json_text(json) + "\n";
}

// Empty if the file does not say what it should.
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
  return whole && progress.batch > 0 ? std::optional(progress) : std::nullopt;
}

fs::path with_end(const fs::path& file, const char* end) { return file.string() + end; }

}  // namespace

GrowingFile::GrowingFile(fs::path file, const Progress& begin, bool replaced)
    : file_(std::move(file)),
      partial_(with_end(file_, ".partial")),
      state_(with_end(file_, ".partial.json")),
      saved_(begin),
      replaced_(replaced) {
  std::error_code error;
  if (!replaced && fs::exists(file_, error)) {
    throw ConfigError("[predict] " + file_.string() +
                      " is there; name another file with --out, or replace it with --force");
  }
  find_saved();
  appended_ = saved_;
}

// Takes over what an earlier start has left.
void GrowingFile::find_saved() {
  std::error_code error;
  const auto size = fs::file_size(partial_, error);
  if (error || (size == 0 && !fs::exists(state_, error))) return;  // killed before it began
  const auto found =
      fs::exists(state_, error) ? state_of(read_file(state_)) : std::optional<Progress>();
  std::string problem;
  if (!found || static_cast<int64_t>(size) < found->bytes) {
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
    throw ConfigError("[predict] " + partial_.string() + " " + problem +
                      "; remove it, or begin again with --force");
  }
}

bool GrowingFile::begins_again(const Progress& begin) {
  if (!replaced_) return false;
  saved_ = appended_ = begin;
  return true;
}

GrowingFile::~GrowingFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
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
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("write", errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw InputError("[predict] another process writes " + partial_.string() +
                     "; wait for it, or name another file with --out");
  }
  // First what counts, then the bytes: a file that is longer than what counts is no harm.
  if (saved_.rows == 0) save();
  if (::ftruncate(descriptor_, saved_.bytes) != 0) fail("write", errno);
  if (::lseek(descriptor_, saved_.bytes, SEEK_SET) < 0) fail("write", errno);
  saved_at_ = std::chrono::steady_clock::now();
}

void GrowingFile::write_all(const std::string& rows) {
  size_t done = 0;
  while (done < rows.size()) {
    const ssize_t written = ::write(descriptor_, rows.data() + done, rows.size() - done);
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
  if (::fsync(descriptor_) != 0) fail("flush", errno);
  try {
    write_file(state_, state_text(appended_));
  } catch (const RunError& error) {
    throw InputError(error.what());
  }
  saved_ = appended_;
  saved_at_ = std::chrono::steady_clock::now();
}

void GrowingFile::leave() {
  if (appended_.rows > 0) return save();
  std::error_code none;
  fs::remove(partial_, none);
  fs::remove(state_, none);
}

void GrowingFile::finish(const Turn& turn) {
  save();
  std::error_code error;
  if (turn) {
    try {
      turn(partial_, file_);
    } catch (const RunError& failed) {
      throw InputError(failed.what());
    }
    fs::remove(partial_, error);
  } else {
    fs::rename(partial_, file_, error);
  }
  if (error) fail("rename", error.value());
  fs::remove(state_, error);
  sync_folder(file_.has_parent_path() ? file_.parent_path() : fs::path("."));
}

}  // namespace tanren
