// Where a fork comes from and where it is made: run.fork_from and the run folder, before anything
// of the checkpoint is read. Called by run and by the command line.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>
#include <optional>

namespace tanren {

// The run folder of a step folder; empty if the step folder lies somewhere else.
std::filesystem::path run_of_checkpoint(const std::filesystem::path& step_folder);

// The folder that `named`, as run.fork_from has it, stands for, without links on the way there. A
// link beside the step folders, such as best, stands for its run: the step that it meant at the
// first start is recorded.
std::filesystem::path meant_source(const std::filesystem::path& named);

// ConfigError if run.fork_from is `folder`, where the new run is to be made, or holds it.
void check_fork_folder(const RunConfig& config, const std::filesystem::path& folder);

// Whether `folder` is a fork of `from`, a run folder or a step folder, and has a checkpoint of its
// own: then it goes on without `from`, which need not exist any more.
bool is_begun_fork(const std::filesystem::path& folder, const std::filesystem::path& from);

// Makes `config`, with which the fork in `folder` is started again, go on from what its first start
// recorded in `before`, if it names the same source; also if the other run was moved. ConfigError
// if the recorded source and the asked one both exist, in two runs of one name.
void keep_source(const std::filesystem::path& folder, const RunConfig& before, RunConfig& config);

// Sets run.fork_from to the step folder that a start goes on from. The key does not count as asked
// for if it named a run folder, in which tanren chose.
void take_source(RunConfig& config, const std::filesystem::path& checkpoint);

// The step folder that run.fork_from names: itself, or the newest complete one of a run folder.
// Empty if the key is not set. `chosen`: an earlier start of the fork began with it and saved
// nothing; if it was removed since, and nobody asked for it by name, the newest one is taken and
// that is logged. ConfigError if there is none or it is not complete.
std::optional<std::filesystem::path> checkpoint_to_fork(const RunConfig& config, bool chosen);

}  // namespace tanren
