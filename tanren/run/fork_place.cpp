#include "tanren/run/fork_place.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/manifest.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/config/identity.h"
#include "tanren/run/run_folder.h"

namespace tanren {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const fs::path& from, const std::string& what, const std::string& advice) {
  throw ConfigError(fmt::format("[run] fork_from {}: {}; {}", from.string(), what, advice));
}

fs::path real_place(const fs::path& path) {
  std::error_code none;
  const fs::path real = fs::weakly_canonical(fs::absolute(path), none);
  return real.has_filename() ? real : real.parent_path();
}

bool lies_in(const fs::path& place, const fs::path& folder) {
  const fs::path way = place.lexically_relative(folder);
  return !way.empty() && *way.begin() != "..";
}

// A folder that may not be read looks as if it were empty.
void check_readable(const fs::path& named, const fs::path& folder) {
  std::error_code error;
  (void)fs::directory_iterator(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    refuse(named, "it cannot be read (" + error.message() + ")", "check its permissions");
  }
}

std::optional<fs::path> newest_of(const fs::path& run) {
  return latest_checkpoint(run / "checkpoints");
}

}  // namespace

fs::path run_of_checkpoint(const fs::path& step_folder) {
  const fs::path above = step_folder.parent_path();
  return above.filename() == "checkpoints" ? above.parent_path() : fs::path();
}

void check_fork_folder(const RunConfig& config, const fs::path& folder) {
  if (config.run.fork_from.empty()) return;
  const fs::path from = real_place(config.run.fork_from), own = real_place(folder);
  fs::path run = is_step_folder(from) ? run_of_checkpoint(from) : from;
  if (run.empty()) run = from;
  if (!lies_in(own, run)) return;
  // A fork that was moved to where the other run was is itself by now.
  std::error_code none;
  const bool is_fork = run == own && fs::exists(own / "config.toml", none) &&
                       is_same_source(recorded_config(own).run.fork_from, config.run.fork_from);
  if (is_fork) return;
  refuse(config.run.fork_from,
         run == own ? "it is the folder of this run itself"
                    : own.string() + " lies in the folder of that run",
         "a fork is a new run: name another folder with --out");
}

bool is_begun_fork(const fs::path& folder, const fs::path& from) {
  std::error_code none;
  if (!fs::exists(folder / "config.toml", none) || !newest_of(folder)) return false;
  const std::string source = recorded_config(folder).run.fork_from;
  return !source.empty() && is_same_source(source, fs::absolute(from).lexically_normal().string());
}

std::optional<fs::path> checkpoint_to_fork(const RunConfig& config, bool chosen) {
  const std::string& named = config.run.fork_from;
  if (named.empty()) return std::nullopt;
  const fs::path place = real_place(named);
  const fs::path run = run_of_checkpoint(place);
  if (chosen && !run.empty() && step_of(place) >= 0 && !is_complete(place)) {
    if (const auto newest = newest_of(run)) {
      log(
          fmt::format("[run] {} is gone, with which this run began before it saved anything; it "
                      "begins again with {}",
                      place.string(), newest->string()));
      return newest;
    }
  }
  std::error_code error;
  if (!fs::is_directory(place, error)) {
    const bool is_missing = !fs::exists(place, error) && !error;
    refuse(named,
           is_missing ? "it does not exist"
           : error    ? "it cannot be read (" + error.message() + ")"
                      : "it is no folder",
           "name a run folder, or one of its step folders");
  }
  check_readable(named, place);
  if (is_step_folder(place)) {
    if (is_complete(place)) return place;
    refuse(named, "its save was never completed (no COMPLETE in it)",
           "name another step folder, or the run folder");
  }
  if (!fs::exists(place / "config.toml", error)) {
    refuse(named, "it is no run folder (no config.toml in it)",
           "name a run folder, or one of its step folders");
  }
  check_readable(named, place / "checkpoints");
  const auto newest = newest_of(place);
  if (newest) return newest;
  refuse(named, "it has no complete checkpoint",
         "let it save one first (checkpoint.every, or a stop), or drop run.fork_from");
}

}  // namespace tanren
