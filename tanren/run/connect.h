// Connects this process to its ranks and checks that they were started with the same config and
// data. All that needs the other ranks is decided here from what the launcher left in the
// environment; with one rank nothing is opened. Internal to run/.
#pragma once

#include "tanren/base/text.h"
#include "tanren/comm/backend.h"
#include "tanren/comm/with_parts.h"
#include "tanren/comm/world.h"
#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"
#include "tanren/train/device.h"

#include <filesystem>
#include <memory>
#include <optional>

namespace tanren {

// The connection that the config asks for; waits until every rank has joined. CommError,
// ConfigError.
std::shared_ptr<Communicator> connect(const RunConfig& config, const World& world,
                                      const AcceleratorKind& accelerators);

// ConfigError for a run with stages in processes (parallel.pipeline) of which only one was started.
// A plan and an evaluation need only one.
void check_is_launched(const RunConfig& config, const Communicator& ranks);

// ConfigError naming the first key that must be the same on all ranks and is not.
void check_same_config(const std::shared_ptr<Communicator>& ranks, const RunConfig& config);

// Calls `work` with this process's connection. An exception from it also ends the other ranks, and
// is rethrown. Parts of the ranks belong into with_parts() (comm/with_parts.h).
template <typename Work>
auto with_ranks(const RunConfig& config, const World& world, const AcceleratorKind& accelerators,
                const Work& work) {
  const auto ranks = connect(config, world, accelerators);
  return cancel_if_it_throws(*ranks, [&] {
    check_same_config(ranks, config);
    return work(ranks);
  });
}

// ConfigError naming what differs between the data that the ranks have read: a fact in `facts`
// (origin.h), or one of four samples of each dataset.
void check_same_data(const std::shared_ptr<Communicator>& ranks, Facts facts, const Dataset& train,
                     const Dataset* eval);

// ConfigError naming the first tensor from model.init_from, model.from_hf or optimizer.init_from
// whose bits differ between the ranks. For stages: no rank has the weights of all, so rank 0 cannot
// send its own.
void check_same_start(const std::shared_ptr<Communicator>& ranks, const TensorMap& weights,
                      const TensorMap& optimizer);

// Rank 0's checkpoint to resume from. CheckpointError on every rank if some rank does not see it.
std::optional<std::filesystem::path> agreed_checkpoint(
    Communicator& ranks, const std::optional<std::filesystem::path>& mine);

}  // namespace tanren
