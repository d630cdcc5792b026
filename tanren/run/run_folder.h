// The run folder: config.toml (resolved), plan.txt, log.jsonl, summary.json, checkpoints/. One
// process at a time holds it, by a lock on the file `lock`. A folder with an equal config goes on;
// another config, or a finished run, is refused, and nothing is touched.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <optional>
#include <string>

namespace tanren {

class RunFolder {
 public:
  // Opens or makes the folder for `config` and locks it. ConfigError: it belongs to another config
  // (the keys are listed) or its run is finished; RunError-like InputError: in use, or unwritable.
  RunFolder(std::filesystem::path folder, const RunConfig& config);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  // The last complete checkpoint, if the folder was there before.
  const std::optional<std::filesystem::path>& resume_from() const { return resume_from_; }
  void write(const std::string& file, const std::string& text) const;

 private:
  std::filesystem::path path_;
  std::optional<std::filesystem::path> resume_from_;
  int lock_ = -1;
};

// The config of a run folder (its config.toml); ConfigError if it is none.
RunConfig config_of_folder(const std::filesystem::path& folder,
                           const std::vector<std::string>& sets, const KnownKinds& known);

}  // namespace tanren
