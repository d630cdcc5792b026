// Forks: a new run that continues from a checkpoint of another run with its own config
// (run.fork_from). This file decides, before anything is loaded, which checkpoint it is, whether
// the model is the same, and which parts fit; train/take_over.h loads them. The other run is only
// read, without its lock, and never again once the fork has its own checkpoint. Internal to run/.
#pragma once

#include "tanren/checkpoint/checkpoint.h"
#include "tanren/comm/communicator.h"
#include "tanren/data/loader.h"
#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"
#include "tanren/run/prepare.h"
#include "tanren/train/take_over.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// A checkpoint that a fork goes on from.
struct ForkSource {
  std::filesystem::path checkpoint;  // a step folder
  std::filesystem::path opened;      // its name when it was opened
  std::string mark;                  // of the save (manifest.h)
  // Open and verified, so its run may continue and remove it.
  std::shared_ptr<const Snapshot> snapshot;
  RunConfig config;  // that it was written with
  Facts data;        // of its run
  // Lines of the plan on what the other run took, if that is a fork itself.
  std::vector<PlanLine> lines = {};
};

struct Fork {
  TakenParts parts;
  std::vector<PlanLine> lines;  // what was taken and what was not, and why
  Cursor start;                 // its place in the data
  std::shared_ptr<const Snapshot> snapshot;
};

// Reads and verifies the step folder. Empty if its run removed the save meanwhile, or replaced it
// by a newer one of its step. CheckpointError as read_checkpoint.
std::optional<ForkSource> open_fork(const std::filesystem::path& checkpoint);

// Opens the checkpoint that checkpoint_to_fork (fork_place.h) chooses. If its run removes or
// replaces it during that, chooses again, a few times. Empty if run.fork_from is not set.
std::optional<ForkSource> choose_fork(const RunConfig& config, bool chosen);

// The source of all ranks: rank 0 calls `choose`, and each opens the same save. If the other run
// removes or replaces it before all have opened it, rank 0 chooses again, a few times.
// CheckpointError on every rank if some rank does not see it or cannot read it.
std::optional<ForkSource> agreed_fork(Communicator& ranks,
                                      const std::function<std::optional<ForkSource>()>& choose);

// The run folder that has the tokenizer and the sizes with which the checkpoint's run began; empty
// if there is none, or if `config` names others.
std::filesystem::path start_of_fork(const ForkSource& source, const RunConfig& config);

// Decides what a run with this config, prepared from the checkpoint, takes from it. `data`: the
// facts of the new run's data. ConfigError if the model has other tensors, or if the new run would
// be at its end.
Fork plan_fork(const ForkSource& source, const RunConfig& config, const Prepared& prepared,
               const Facts& data);

}  // namespace tanren
