#include "tanren/run/run_folder.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/temporary.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/config/identity.h"
#include "tanren/config/read_config.h"
#include "tanren/config/write_config.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// How the folder's run can go on, if it reached its end and `now` asks for no more than it did;
// else empty.
std::string way_to_go_on(const fs::path& folder, const RunConfig& before, const RunConfig& now) {
  const auto summary = folder / "summary.json";
  if (!fs::exists(summary)) return "";
  const auto json = nlohmann::json::parse(read_file(summary), nullptr, false);
  if (json.is_discarded() || json.value("status", "") != "finished") return "";
  const std::string reason = json.value("reason", "");
  if (!reason.empty()) {
    // A longer run would end at once again.
    const bool patient =
        now.early_stop.patience == 0 || now.early_stop.patience > before.early_stop.patience;
    return patient ? "" : "(" + reason + "); raise early_stop.patience (0: off) to go on";
  }
  const bool grown = now.run.steps.value_or(0) > before.run.steps.value_or(0) ||
                     now.run.epochs.value_or(0) > before.run.epochs.value_or(0);
  return grown ? "" : "; raise run.steps or run.epochs to go on";
}

// A run that goes on beyond its end has not finished: whatever comes between, the next start goes on.
void reopen(const fs::path& folder) {
  const auto summary = folder / "summary.json";
  if (!fs::exists(summary)) return;
  auto json = nlohmann::ordered_json::parse(read_file(summary), nullptr, false);
  if (!json.is_object() || json.value("status", "") != "finished") return;
  json["status"] = "stopped";
  json.erase("reason");
  write_file(summary, json.dump(2) + "\n");
}

// Of a config that was read: its kinds are known, whoever registered them.
KnownKinds kinds_of(const RunConfig& config) {
  return {std::vector{config.model.kind},
          std::vector{config.data.train.kind, config.data.eval.kind}};
}

// An empty folder, or one whose first file was not written to its end.
bool is_as_good_as_empty(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "lock" && !is_temporary_name(name)) return false;
  }
  return true;
}

// False where another process has it. A file system without locks, as some network ones are, costs a
// warning: most runs there are alone in their folder.
bool take_lock(int lock, const fs::path& folder) {
  while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    log("[run] cannot lock " + folder.string() + " (" + std::strerror(errno) +
        "), so nothing keeps a second process out of it; start no other run there");
    break;
  }
  return true;
}

// What a process that was killed left half-written.
void remove_remains(const fs::path& folder) {
  for (const auto& place : {folder, folder / "tokenizer"}) remove_leftovers(place);
  remove_unfinished(folder / "checkpoints");
}

}  // namespace

RunFolder::RunFolder(fs::path folder, const RunConfig& config) : path_(std::move(folder)) {
  std::error_code error;
  const bool existed = fs::exists(path_);
  if (existed && !fs::is_directory(path_)) {
    throw InputError("[run] " + path_.string() + " is a file; name another folder with --out");
  }
  if (existed && !fs::exists(path_ / "config.toml") && !is_as_good_as_empty(path_)) {
    throw InputError("[run] " + path_.string() +
                     " holds other files and no run; name another folder with --out");
  }
  fs::create_directories(path_, error);
  lock_ = error ? -1 : ::open((path_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) {
    throw InputError("[run] cannot write to " + path_.string() + " (" +
                     (error ? error.message() : std::string(std::strerror(errno))) +
                     "); name another folder with --out");
  }
  if (!take_lock(lock_, path_)) {
    ::close(lock_);
    throw InputError(
        "[run] " + path_.string() +
        " is in use by another process; wait for it or name another folder with --out");
  }
  try {
    if (fs::exists(path_ / "config.toml")) {
      const RunConfig before = config_of_folder(path_, {}, kinds_of(config));
      const auto differing = differing_keys(before, config);
      if (!differing.empty()) {
        throw ConfigError("[run] " + path_.string() + " was made with another config (" +
                          join(differing, "; ") +
                          "); go back to it, or name another run.name or --out");
      }
      const std::string way = way_to_go_on(path_, before, config);
      if (!way.empty()) {
        throw ConfigError("[run] " + path_.string() + " is finished" +
                          (way.front() == '(' ? " " : "") + way +
                          ", or name another run.name or --out");
      }
      resume_from_ = latest_checkpoint(checkpoints());
      reopen(path_);
    }
    remove_remains(path_);
    RunConfig kept = config;
    kept.run.stop_after.reset();  // of that session only
    write("config.toml", to_toml(kept));
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void RunFolder::write(const std::string& file, const std::string& text) const {
  write_file(path_ / file, text);
}

RunConfig config_of_folder(const fs::path& folder, const std::vector<std::string>& sets,
                           const KnownKinds& known) {
  const auto file = folder / "config.toml";
  if (!fs::exists(file)) {
    throw ConfigError(
        "[run] " + folder.string() +
        " is no run folder (no config.toml in it); give a config file or a run folder");
  }
  RunConfig config = read_config(file, sets, known);
  // The file holds every key; what was asked is what differs from the defaults.
  config.asked = changed_keys(config);
  return config;
}

}  // namespace tanren
