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

constexpr const char* kKey = "run.fork_from";

[[noreturn]] void refuse(const fs::path& from, const std::string& what, const std::string& advice) {
  throw ConfigError(fmt::format("[run] fork_from {}: {}; {}", from.string(), what, advice));
}

fs::path real_place(const fs::path& path) {
  constexpr int kMostLinks = 40;
  std::error_code none;
  fs::path real = fs::weakly_canonical(fs::absolute(path), none);
  if (!real.has_filename()) real = real.parent_path();
  for (int i = 0; i < kMostLinks && fs::is_symlink(real, none); ++i) {  // a dangling link
    real = fs::weakly_canonical(real.parent_path() / fs::read_symlink(real, none), none);
  }
  return real;
}

fs::path plain_place(const fs::path& path) {
  const fs::path place = fs::absolute(path).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

// The run or step folder `named` with links on the way resolved. A link `checkpoints` stays,
// because the folder above it is the run folder.
fs::path resolved_place(const fs::path& named) {
  fs::path real = real_place(named);
  const fs::path run = run_of_checkpoint(plain_place(named));
  if (run.empty() || !is_step_folder(real)) return real;
  return real_place(run) / "checkpoints" / real.filename();
}

// The run folder of a step folder, else the folder itself.
fs::path run_of(const fs::path& place) {
  const fs::path run = is_step_folder(place) ? run_of_checkpoint(place) : fs::path();
  return run.empty() ? place : run;
}

// Whether `place` is, or was, a link beside step folders to one of them.
bool is_link_to_step(const fs::path& place) {
  if (place.parent_path().filename() != "checkpoints" || step_of(place) >= 0) return false;
  std::error_code none;
  if (fs::is_symlink(place, none)) return is_step_folder(real_place(place));
  return place.filename() == "best" && !fs::exists(place, none);
}

// Whether both sources exist, in two folders.
bool are_two_runs(const fs::path& one, const fs::path& other) {
  const fs::path first = run_of(one), second = run_of(other);
  std::error_code none;
  return fs::exists(first, none) && fs::exists(second, none) &&
         !fs::equivalent(first, second, none);
}

bool lies_within(const fs::path& place, const fs::path& folder) {
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

fs::path meant_source(const fs::path& named) {
  const fs::path place = plain_place(named);
  return is_link_to_step(place) ? real_place(run_of_checkpoint(place)) : resolved_place(named);
}

void check_fork_folder(const RunConfig& config, const fs::path& folder) {
  if (config.run.fork_from.empty()) return;
  const fs::path from = resolved_place(config.run.fork_from), own = real_place(folder);
  const fs::path run = run_of(from);
  if (!lies_within(own, run)) return;
  // The folder may hold the fork itself, moved to where the other run was.
  std::error_code none;
  const bool is_fork = run == own && fs::exists(own / "config.toml", none) &&
                       is_same_source(recorded_config(own).run.fork_from,
                                      meant_source(config.run.fork_from).string());
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
  const fs::path asked = meant_source(from);
  return !source.empty() && is_same_source(source, asked.string()) && !are_two_runs(source, asked);
}

void keep_source(const fs::path& folder, const RunConfig& before, RunConfig& config) {
  const fs::path recorded = before.run.fork_from;
  if (recorded.empty() || config.run.fork_from.empty()) return;
  const fs::path asked = meant_source(config.run.fork_from);
  config.run.fork_from = asked.string();
  if (!is_same_source(recorded.string(), asked.string())) return;
  if (are_two_runs(recorded, asked)) {
    throw ConfigError(
        fmt::format("[run] {} is a fork of {}, and not of {}; name another folder with --out",
                    folder.string(), run_of(recorded).string(), run_of(asked).string()));
  }
  const bool is_by_name =
      before.asked.count(kKey) > 0 || (config.asked.count(kKey) > 0 && is_step_folder(asked));
  std::error_code none;
  if (fs::exists(recorded, none)) {
    config.run.fork_from = recorded.string();
  } else if (step_of(recorded) >= 0 && !is_step_folder(asked)) {  // the other run was moved
    config.run.fork_from = (asked / "checkpoints" / recorded.filename()).string();
  }
  if (is_by_name) {
    config.asked.insert(kKey);
  } else {
    config.asked.erase(kKey);
  }
}

void take_source(RunConfig& config, const fs::path& checkpoint) {
  if (!is_step_folder(resolved_place(config.run.fork_from))) config.asked.erase(kKey);
  config.run.fork_from = checkpoint.string();
}

std::optional<fs::path> checkpoint_to_fork(const RunConfig& config, bool chosen) {
  const std::string& named = config.run.fork_from;
  if (named.empty()) return std::nullopt;
  const fs::path place = resolved_place(named);
  const fs::path run = run_of_checkpoint(place);
  if (chosen && !run.empty() && step_of(place) >= 0 && !is_complete(place)) {
    if (config.asked.count(kKey) > 0) {
      refuse(named, "it is gone, and this run began with it and saved nothing",
             "remove this run's folder, or fork another step into a new one (--out)");
    }
    if (auto newest = newest_of(run)) {
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
  auto newest = newest_of(place);
  if (newest) return newest;
  refuse(named, "it has no complete checkpoint",
         "let it save one first (checkpoint.every, or a stop), or drop run.fork_from");
}

}  // namespace tanren
