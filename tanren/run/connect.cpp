#include "tanren/run/connect.h"

#include "tanren/base/error.h"
#include "tanren/comm/exchange.h"
#include "tanren/plan/planner.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/run/device.h"

#include <chrono>

namespace tanren {

std::shared_ptr<Communicator> connect(const RunConfig& config, const World& world) {
  if (world.size == 1) return single_communicator();
  Machine machine = with_world(probe_machine(), world);
  probe_accelerators(machine, config.run.device);
  const ParallelPlan plan = plan_connection(config, machine);
  const auto patience = std::chrono::duration<double>(plan.patience_seconds);
  return make_communicator(
      world, {.backend = plan.backend,
              .meeting = config.parallel.meeting,
              .patience = std::chrono::duration_cast<std::chrono::milliseconds>(patience)});
}

std::optional<std::filesystem::path> agreed_checkpoint(
    Communicator& ranks, const std::optional<std::filesystem::path>& mine) {
  if (ranks.world_size() == 1) return mine;
  const bool is_first = ranks.rank() == 0;
  const std::string asked =
      gather_texts(ranks, is_first && mine ? std::filesystem::absolute(*mine).string() : "")[0];
  if (asked.empty()) return std::nullopt;
  const auto seen = gather_texts(ranks, std::filesystem::exists(asked) ? "yes" : "");
  for (size_t rank = 0; rank < seen.size(); ++rank) {
    if (!seen[rank].empty()) continue;
    throw CheckpointError("[run] rank " + std::to_string(rank) + " does not see " + asked +
                          "; put the run folder where every machine reaches it under one path");
  }
  return asked;
}

}  // namespace tanren
