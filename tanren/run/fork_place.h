// The source and the place of a fork: run.fork_from and the run folder, before anything of the
// checkpoint is read. Called by run and by the command line.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>
#include <optional>

namespace tanren {

// The run folder of a step folder; empty if the step folder lies somewhere else.
std::filesystem::path run_of_checkpoint(const std::filesystem::path& step_folder);

// The folder that `named`, a value of run.fork_from, means, without links on the way. A link beside
// the step folders, such as best, means its run, because the step at the first start is recorded.
std::filesystem::path meant_source(const std::filesystem::path& named);

// ConfigError if run.fork_from is `folder`, where the new run is to be made, or holds it.
void check_fork_folder(const RunConfig& config, const std::filesystem::path& folder);

// Whether `folder` is a fork of `from` (a run folder or a step folder) and has its own checkpoint.
// It then resumes without `from`, which need not exist any more.
bool is_begun_fork(const std::filesystem::path& folder, const std::filesystem::path& from);

// Changes `config`, with which the fork in `folder` is started again, so that it continues from the
// source that its first start recorded in `before`, if it names the same source. The other run may
// have been moved. ConfigError if the recorded source and the named one both exist, in two runs of
// one name.
void keep_source(const std::filesystem::path& folder, const RunConfig& before, RunConfig& config);

// Sets run.fork_from to the step folder from which a start continues. If the key named a run
// folder, it no longer counts as asked for, because tanren chose the step.
void take_source(RunConfig& config, const std::filesystem::path& checkpoint);

// The step folder that run.fork_from names: itself, or the newest complete one of a run folder.
// Empty if the key is not set. `chosen`: an earlier start of the fork began with it and saved
// nothing. If the step folder was removed since then and was not named by the user, takes the
// newest one and logs that. ConfigError if there is none or it is not complete.
std::optional<std::filesystem::path> checkpoint_to_fork(const RunConfig& config, bool chosen);

}  // namespace tanren
