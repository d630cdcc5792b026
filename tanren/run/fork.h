// Forks: a new run that goes on from a checkpoint of another run under a config of its own
// (run.fork_from). Decided here before anything is loaded: which checkpoint, whether the model is
// the same, and which parts fit; train/take_over.h loads them. The other run is only read, without
// its lock, and never again once the fork has a checkpoint of its own. Internal to run/.
#pragma once

#include "tanren/checkpoint/checkpoint.h"
#include "tanren/parallel/data_parallel.h"
#include "tanren/plan/plan.h"
#include "tanren/run/prepare.h"
#include "tanren/train/take_over.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

namespace tanren {

struct Fork {
  std::filesystem::path checkpoint;  // a step folder
  TakenParts parts;
  std::vector<PlanLine> lines;  // what was taken and what was not, and why
  // The checkpoint, open and verified, so that its run may go on meanwhile and remove it.
  std::shared_ptr<const Snapshot> snapshot;
};

// ConfigError if run.fork_from lies in `folder`, where the new run is to be made.
void check_fork_folder(const RunConfig& config, const std::filesystem::path& folder);

// The step folder that run.fork_from names: itself, or the newest complete one of a run folder.
// Empty if the key is not set. ConfigError if there is none or it is not complete.
std::optional<std::filesystem::path> checkpoint_to_fork(const RunConfig& config);

// The run folder that has the tokenizer and the sizes with which the checkpoint's run began; empty
// if there is none, or if `config` names others.
std::filesystem::path start_of_fork(const std::filesystem::path& checkpoint,
                                    const RunConfig& config);

// Reads and verifies the checkpoint and decides what a run with this config, prepared from it,
// takes from the checkpoint. `data`: the facts of the new run's data. ConfigError if the model has
// other tensors, or if the new run would be at its end; CheckpointError as read_checkpoint.
Fork plan_fork(const std::filesystem::path& checkpoint, const RunConfig& config,
               const Prepared& prepared, const Facts& data);

}  // namespace tanren
