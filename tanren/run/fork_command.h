// The command that forks a run, as refusals offer it. Called by run and by the command line.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// `text` as one word of a shell, quoted if it must be.
std::string shell_word(const std::string& text);
// The option that gives `key` this value, a TOML text or "not set".
std::string set_option(const std::string& key, const std::string& value);

// "tanren run FOLDER --fork --out NEW" with these settings; an empty `out`: a new folder beside it.
std::string fork_command(const std::filesystem::path& folder, const std::filesystem::path& out,
                         const std::vector<std::string>& sets);

// The same command with all keys in which `config` differs from `before`, the config of the run in
// `folder`, whose newest checkpoint is at `step`. Empty if the fork would or might be refused: its
// model has other tensors, its length is in epochs of other batches or data, it is at its end, or
// no config can have these values together.
std::string command_to_fork(const std::filesystem::path& folder, int64_t step,
                            const RunConfig& before, const RunConfig& config);

}  // namespace tanren
