// The run folder: config.toml (resolved), plan.txt, log.jsonl, summary.json, checkpoints/. One
// process at a time holds it by locking the file `lock`, before it reads anything else there. A
// start with an equal config resumes the folder's run. Another config, or a finished run, is
// refused, and nothing is changed.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

// The output of a run that a sweep started. The file may exist before the run begins.
constexpr const char* kRunOutput = "output.txt";

class RunFolder {
 public:
  // Opens or creates the folder for `config` and locks it. `requested`: keys that this start sets
  // explicitly; only these may change on request. ConfigError if the folder belongs to another
  // config (the keys are listed) or its run is finished. InputError if it is in use or not
  // writable, or as checkpoint_to_resume.
  RunFolder(std::filesystem::path folder, const RunConfig& config,
            const std::set<std::string>& requested = {});
  // If begin() was not called, the folder is left unchanged, and a folder created here is removed.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  // The last complete checkpoint, if the folder existed before.
  const std::optional<std::filesystem::path>& resume_from() const { return resume_from_; }
  // Whether the folder holds the config of an earlier start.
  bool has_begun() const { return has_begun_; }
  // The config, with the recorded values of kept().
  const RunConfig& config() const { return config_; }
  // Keys that an earlier start changed on request, while the given config still has the value from
  // before.
  const std::vector<std::string>& kept() const { return kept_; }
  // Sets the step folder from which a fork continues. begin() records it, so that every start takes
  // the same.
  void set_source(const std::filesystem::path& checkpoint);
  // Call this once all that the run needs is ready. It writes config.toml, and reopens a run that
  // finished or failed.
  void begin();
  bool began() const { return began_; }
  // Call this when the run has saved a checkpoint. Later starts that find none are then refused,
  // unless the whole folder checkpoints/ is gone.
  void note_saved() const;
  void write(const std::string& file, const std::string& text) const;

 private:
  void take_lock();
  void go_on(const std::set<std::string>& requested);
  void leave();

  std::filesystem::path path_;
  RunConfig config_;
  std::vector<std::string> kept_;
  std::optional<std::filesystem::path> resume_from_;
  std::vector<std::filesystem::path> made_;  // folders that did not exist, the deepest first
  bool made_lock_ = false;
  bool has_begun_ = false;
  bool began_ = false;
  int lock_ = -1;
};

// ConfigError if `folder` is a step folder: a run in there would ruin the checkpoint.
void check_run_folder(const std::filesystem::path& folder);

// ConfigError or InputError if no run can be in `folder`, as the constructor of RunFolder throws,
// but without its lock.
void check_place(const std::filesystem::path& folder);

// The last complete checkpoint of the run in `folder`; nothing if it has none. InputError if
// checkpoints/ cannot be listed, or if it exists without a complete checkpoint although the run has
// saved some, because a new beginning would lose them.
std::optional<std::filesystem::path> checkpoint_to_resume(const std::filesystem::path& folder);

struct NextConfig {
  RunConfig config;
  std::vector<std::string> kept;  // as RunFolder::kept()
};
// The config that the run of `folder` continues with, from `resume_from` or from its beginning, if
// started with `config`. ConfigError if `config` belongs to another run.
NextConfig config_to_go_on(const std::filesystem::path& folder, RunConfig config,
                           const std::set<std::string>& requested,
                           const std::optional<std::filesystem::path>& resume_from);

// The kinds of a config that was already read, so that they count as known in whatever registry
// they are.
KnownKinds kinds_of(const RunConfig& config);

// The config of a run folder (its config.toml); ConfigError if it is not a run folder.
RunConfig config_of_folder(const std::filesystem::path& folder,
                           const std::vector<std::string>& sets, const KnownKinds& known);

// The config as run and step folders record it: without run.stop_after, which is of one start.
std::string recorded_toml(RunConfig config);
// The config that a run folder, or one of its step folders, was written with; not validated again.
RunConfig recorded_config(const std::filesystem::path& folder);
// The same of the text of a config.toml, which was read from `file`.
RunConfig recorded_config_in(const std::string& text, const std::filesystem::path& file);

}  // namespace tanren
