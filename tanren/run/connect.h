// Which ranks this process runs with, the connection to them, and whether they were started alike.
// Everything that needs the others is decided here from what the launcher left in the environment; with
// one rank nothing is opened. Internal to run/.
#pragma once

#include "tanren/base/error_line.h"
#include "tanren/base/text.h"
#include "tanren/comm/backend.h"
#include "tanren/comm/world.h"
#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/parallel/data_parallel.h"
#include "tanren/plan/plan.h"

#include <exception>
#include <filesystem>
#include <memory>
#include <optional>

namespace tanren {

// The connection that the config asks for; waits until every rank is there. CommError, ConfigError.
std::shared_ptr<Communicator> connect(const RunConfig& config, const World& world);

// ConfigError naming the first key that differs over ranks and must not.
void check_same_config(const std::shared_ptr<Communicator>& ranks, const RunConfig& config);

// `work` with this process's connection. What it throws ends the other ranks too, and comes out.
template <typename Work>
auto with_ranks(const RunConfig& config, const World& world, const Work& work) {
  const auto ranks = connect(config, world);
  try {
    check_same_config(ranks, config);
    return work(ranks);
  } catch (...) {
    ranks->cancel(line_of_current());
    throw;
  }
}

// ConfigError naming what differs in the data that the ranks have read: `facts` of them (origin.h), or
// samples looked at here and there.
void check_same_data(const std::shared_ptr<Communicator>& ranks, Facts facts, const Dataset& train,
                     const Dataset* eval);

// Rank 0's checkpoint to go on from, seen by every rank. CheckpointError on each where some rank does
// not see it.
std::optional<std::filesystem::path> agreed_checkpoint(
    Communicator& ranks, const std::optional<std::filesystem::path>& mine);

}  // namespace tanren
