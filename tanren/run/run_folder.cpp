#include "tanren/run/run_folder.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/temporary.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/config/device_name.h"
#include "tanren/config/identity.h"
#include "tanren/config/read_config.h"
#include "tanren/config/validate.h"
#include "tanren/config/write_config.h"
#include "tanren/run/earlier_summary.h"
#include "tanren/run/fork_command.h"
#include "tanren/run/fork_place.h"
#include "tanren/run/origin.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr int kMostTries = 100;  // for the lock
constexpr const char* kSaved = "saved";

// Whether the folder is empty, or the first file of its run was not written completely.
bool is_as_good_as_empty(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "lock" && name != kRunOutput && !is_temporary_name(name)) return false;
  }
  return true;
}

// False if another process holds the lock. A file system without locks (some network file systems)
// only gets a warning: most runs there are alone in their folder.
bool lock_alone(int lock, const fs::path& folder) {
  while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    log("[run] cannot lock " + folder.string() + " (" + std::strerror(errno) +
        "), so nothing keeps a second process out of it; start no other run there");
    break;
  }
  return true;
}

// Removes half-written files of a process that was killed.
void remove_remains(const fs::path& folder) {
  for (const auto& place : {folder, folder / "tokenizer", folder / "images"})
    remove_leftovers(place);
  remove_unfinished(folder / "checkpoints");
}

// ConfigError if `config` asks for a fork and the folder's run is not that fork.
void refuse_other_fork(const fs::path& folder, const RunConfig& before, const RunConfig& config) {
  if (config.run.fork_from.empty()) return;
  const auto changes = defining_changes(before, config);
  const bool is_other = std::any_of(changes.begin(), changes.end(), [](const KeyChange& change) {
    return change.key == "run.fork_from";
  });
  if (!is_other) return;
  throw ConfigError(fmt::format(
      "[run] {} holds a run already, which is no fork of {}; name another folder with --out",
      folder.string(), config.run.fork_from));
}

// The end of a refusal: the command that forks the folder's checkpoint with `config`; empty if
// there is none.
std::string way_to_fork(const fs::path& folder, const fs::path& checkpoint, const RunConfig& before,
                        const RunConfig& config) {
  const std::string command = command_to_fork(folder, step_of(checkpoint), before, config);
  return command.empty() ? "" : "; or fork it with these changes: " + command;
}

// ConfigError if `folder` is not a run folder.
fs::path config_file(const fs::path& folder) {
  fs::path file = folder / "config.toml";
  std::error_code error;
  const bool is_there = fs::exists(file, error);
  if (error) {
    throw InputError(fmt::format("[run] cannot read {} ({}); check its permissions", file.string(),
                                 error.message()));
  }
  if (!is_there) {
    throw ConfigError(
        "[run] " + folder.string() +
        " is no run folder (no config.toml in it); give a config file or a run folder");
  }
  return file;
}

// `text` holds every key, and marks those that were not asked for; keys in `sets` count as asked.
RunConfig with_asked(RunConfig config, const std::string& text,
                     const std::vector<std::string>& sets = {}) {
  std::set<std::string> typed;
  for (const std::string& set : sets) typed.insert(set.substr(0, set.find('=')));
  std::string section;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    if (line.starts_with("[")) section = std::string(line.substr(1, line.find(']') - 1)) + ".";
    if (!line.ends_with("  # default")) continue;
    const std::string key = section + std::string(trimmed(line.substr(0, line.find('='))));
    if (typed.count(key) == 0) config.asked.erase(key);
  }
  return config;
}

// Whether the open `descriptor` is the file at `path`.
bool is_file(int descriptor, const fs::path& path) {
  struct stat open_file = {};
  struct stat named = {};
  return ::fstat(descriptor, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

}  // namespace

std::optional<fs::path> checkpoint_to_resume(const fs::path& folder) {
  const fs::path checkpoints = folder / "checkpoints";
  std::error_code error, none;
  const bool is_link = fs::is_symlink(checkpoints, none);
  if (is_link || fs::exists(checkpoints, none)) (void)fs::directory_iterator(checkpoints, error);
  auto newest = latest_checkpoint(checkpoints);
  if (newest) return newest;
  const bool is_there = is_link || fs::exists(checkpoints, none);
  const bool has_saved = fs::exists(folder / kSaved, none) || counts_steps(folder);
  if (!error && !(is_there && has_saved)) return std::nullopt;
  const std::string target = fs::read_symlink(checkpoints, none).string();
  throw InputError(fmt::format(
      "[run] {}{} {}, or remove it if the run is to begin again", checkpoints.string(),
      is_link ? " (a link to " + target + ")" : "",
      error ? "cannot be listed (" + error.message() + "); make it reachable"
            : "has no complete checkpoint, and the run has saved some; mount the disk that belongs "
              "there or put them back"));
}

void check_run_folder(const fs::path& folder) {
  if (!is_step_folder(folder)) return;
  throw ConfigError(fmt::format(
      "[run] {} is a checkpoint and no run folder; name its run folder, or make another run that "
      "goes on from it: tanren run {} --fork --out NEW",
      folder.string(), shell_word(folder.string())));
}

void check_place(const fs::path& folder) {
  check_run_folder(folder);
  std::error_code none;
  if (!fs::exists(folder, none)) return;
  if (!fs::is_directory(folder, none)) {
    throw InputError("[run] " + folder.string() + " is a file; name another folder with --out");
  }
  if (!fs::exists(folder / "config.toml", none) && !is_as_good_as_empty(folder)) {
    throw InputError("[run] " + folder.string() +
                     " holds other files and no run; name another folder with --out");
  }
}

RunFolder::RunFolder(fs::path folder, const RunConfig& config,
                     const std::set<std::string>& requested)
    : path_(std::move(folder)), config_(config) {
  check_run_folder(path_);
  std::error_code none;
  if (fs::exists(path_, none) && !fs::is_directory(path_, none)) check_place(path_);
  try {
    take_lock();
    // Checked under the lock: before it, another start may be writing the folder's first files.
    check_place(path_);
    has_begun_ = fs::exists(path_ / "config.toml");
    if (has_begun_) go_on(requested);
  } catch (...) {
    leave();
    throw;
  }
}

RunFolder::~RunFolder() { leave(); }

void RunFolder::take_lock() {
  const fs::path lock = path_ / "lock";
  const auto fail = [&](const std::string& why) {
    throw InputError("[run] cannot write to " + path_.string() + " (" + why +
                     "); name another folder with --out");
  };
  // Whatever other processes remove meanwhile is created again; a lock that is a dangling link
  // never succeeds.
  for (int tries = 0; tries < kMostTries; ++tries) {
    for (fs::path at = path_.lexically_normal(); !at.empty() && !fs::exists(at);
         at = at.parent_path()) {
      if (at.has_filename()) made_.push_back(at);
    }
    std::error_code error;
    fs::create_directories(path_, error);
    if (error == std::errc::no_such_file_or_directory) continue;
    if (error) fail(error.message());
    made_lock_ = made_lock_ || !fs::exists(lock);
    lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0 && errno == ENOENT) continue;  // the process that made the folder removed it
    if (lock_ < 0) fail(std::strerror(errno));
    if (!lock_alone(lock_, path_)) {
      made_lock_ = false;
      made_.clear();
      throw InputError(
          "[run] " + path_.string() +
          " is in use by another process; wait for it or name another folder with --out");
    }
    if (is_file(lock_, lock)) return;
    ::close(lock_);  // the lock file was removed meanwhile
    lock_ = -1;
  }
  fail(std::strerror(ENOENT));
}

// Resumes the folder's run.
void RunFolder::go_on(const std::set<std::string>& requested) {
  const RunConfig before = recorded_config(path_);
  resume_from_ = checkpoint_to_resume(path_);
  NextConfig next = config_to_go_on(path_, config_, requested, resume_from_);
  config_ = std::move(next.config);
  kept_ = std::move(next.kept);
  const std::string way = way_to_go_on(path_, before, config_);
  if (!way.empty()) {
    throw ConfigError(fmt::format("[run] {} is finished{}{}, or name another run.name or --out",
                                  path_.string(), way.front() == '(' ? " " : "", way));
  }
}

void RunFolder::begin() {
  began_ = true;
  remove_remains(path_);
  reopen(path_, resume_from_);
  if (resume_from_) {
    note_saved();
  } else {
    fs::remove(path_ / kSaved);
  }
  write("config.toml", recorded_toml(config_));
}

void RunFolder::set_source(const fs::path& checkpoint) { take_source(config_, checkpoint); }

void RunFolder::leave() {
  if (!began_) {
    std::error_code ignored;
    // The next process to lock this file sees that it is no longer the folder's.
    if (made_lock_ && lock_ >= 0) fs::remove(path_ / "lock", ignored);
    for (const fs::path& folder : made_) fs::remove(folder, ignored);  // unless it is not empty
  }
  if (lock_ >= 0) ::close(lock_);
  lock_ = -1;
}

void RunFolder::note_saved() const {
  if (!fs::exists(path_ / kSaved)) write(kSaved, "this run has saved checkpoints\n");
}

void RunFolder::write(const std::string& file, const std::string& text) const {
  write_file(path_ / file, text);
}

NextConfig config_to_go_on(const fs::path& folder, RunConfig config,
                           const std::set<std::string>& requested,
                           const std::optional<fs::path>& resume_from) {
  const RunConfig before = recorded_config(folder);
  keep_source(folder, before, config);
  std::vector<std::string> kept;
  if (resume_from) {
    kept = overtaken_keys(changes_until(*resume_from, before), before, config, requested);
    std::string back;  // the options that undo what is kept
    for (const KeyChange& stays : changes_on_request(config, before)) {
      if (std::find(kept.begin(), kept.end(), stays.key) == kept.end()) continue;
      const std::string option = set_option(stays.key, stays.before);
      tanren::log(fmt::format(
          "[run] {} stays {}, as --set asked before; {} goes back to what the config file says",
          stays.key, stays.now, option));
      back += " " + option;
    }
    take_keys(config, before, kept);
    const auto problems = validate(config, kinds_of(config));
    if (!kept.empty() && !problems.empty()) {
      throw ConfigError(
          fmt::format("[run] with what --set asked before ({}): {}; ask for those keys, too:{}",
                      join(kept), join(problems, "; "), back));
    }
  }
  const auto differing = differing_keys(before, config, requested);
  if (!differing.empty()) {
    refuse_other_fork(folder, before, config);
    std::string sets;
    std::set<std::string> asked = requested;
    for (const KeyChange& change : changes_on_request(before, config)) {
      sets += " " + set_option(change.key, change.now);
      asked.insert(change.key);
    }
    if (!differing_keys(before, config, asked).empty()) sets.clear();  // they would not be enough
    throw ConfigError(
        fmt::format("[run] {} was made with another config ({}); go back to it, {}or name another "
                    "run.name or --out{}",
                    folder.string(), join(differing, "; "),
                    sets.empty() ? "" : "ask for the change with" + sets + ", ",
                    resume_from ? way_to_fork(folder, *resume_from, before, config) : ""));
  }
  return {std::move(config), std::move(kept)};
}

KnownKinds kinds_of(const RunConfig& config) {
  KnownKinds kinds(std::vector{config.model.kind},
                   std::vector{config.data.train.kind, config.data.eval.kind});
  const auto device = read_device_name(config.run.device);
  if (device && device->kind != "cpu" && device->kind != "auto") kinds.accelerator = device->kind;
  return kinds;
}

RunConfig config_of_folder(const fs::path& folder, const std::vector<std::string>& sets,
                           const KnownKinds& known) {
  const fs::path file = config_file(folder);
  return with_asked(read_config(file, sets, known), read_file(file), sets);
}

std::string recorded_toml(RunConfig config) {
  config.run.stop_after.reset();
  return to_toml(config);
}

RunConfig recorded_config(const fs::path& folder) {
  const fs::path file = config_file(folder);
  return with_asked(read_recorded_config(file), read_file(file));
}

RunConfig recorded_config_in(const std::string& text, const fs::path& file) {
  return with_asked(parse_recorded_config(text, file.string()), text);
}

}  // namespace tanren
