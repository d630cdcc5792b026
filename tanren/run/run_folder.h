// The run folder: config.toml (resolved), plan.txt, log.jsonl, summary.json, checkpoints/. One
// process at a time holds it, by a lock on the file `lock`, before it looks at anything in it. A folder
// with an equal config goes on; another config, or a finished run, is refused, and nothing is touched.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

class RunFolder {
 public:
  // Opens or makes the folder for `config` and locks it. `requested`: keys whose value this start asks
  // for, so that those that may change on request do. ConfigError: it belongs to another config (the
  // keys are listed) or its run is finished; RunError-like InputError: in use, or unwritable.
  RunFolder(std::filesystem::path folder, const RunConfig& config,
            const std::set<std::string>& requested = {});
  // Until begin() nothing in the folder is changed, and one that was made here goes again.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  // The last complete checkpoint, if the folder was there before.
  const std::optional<std::filesystem::path>& resume_from() const { return resume_from_; }
  // The config, and in it the values of kept().
  const RunConfig& config() const { return config_; }
  // Keys that an earlier start changed on request, and of which `config` has a value from before that.
  const std::vector<std::string>& kept() const { return kept_; }
  // Everything is there that the run needs: config.toml is written, and a finished run reopened.
  void begin();
  void write(const std::string& file, const std::string& text) const;

 private:
  void take_lock();
  void go_on(const std::set<std::string>& requested);
  void leave();

  std::filesystem::path path_;
  RunConfig config_;
  std::vector<std::string> kept_;
  std::optional<std::filesystem::path> resume_from_;
  std::vector<std::filesystem::path> made_;  // folders that were not there, the deepest first
  bool made_lock_ = false;
  bool began_ = false;
  int lock_ = -1;
};

struct NextConfig {
  RunConfig config;
  std::vector<std::string> kept;  // as RunFolder::kept()
};
// What the run of `folder` goes on with where a start has `config`, from `resume_from` or anew. ConfigError
// where that is another run's.
NextConfig config_to_go_on(const std::filesystem::path& folder, RunConfig config,
                           const std::set<std::string>& requested,
                           const std::optional<std::filesystem::path>& resume_from);

// Of a config that was read: its kinds are known, whoever registered them.
KnownKinds kinds_of(const RunConfig& config);

// The config of a run folder (its config.toml); ConfigError if it is none.
RunConfig config_of_folder(const std::filesystem::path& folder,
                           const std::vector<std::string>& sets, const KnownKinds& known);

// The config that a run folder, or one of its step folders, was written with; not validated anew.
RunConfig recorded_config(const std::filesystem::path& folder);

}  // namespace tanren
