#include "tanren/run/connect.h"

#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/config/device_name.h"
#include "tanren/config/identity.h"
#include "tanren/data/collated.h"
#include "tanren/plan/planner.h"
#include "tanren/plan/probe_machine.h"

#include <ATen/core/Tensor.h>

#include <chrono>

namespace tanren {

namespace {

void add_samples(const std::string& name, const Dataset& data, Facts& facts) {
  const int64_t size = data.size();
  for (const int64_t index : {int64_t{0}, size / 3, size / 2, size - 1}) {
    const Collated sample = collated(data, {index});
    for (const auto& [field, tensor] : sample.batch.fields) {
      facts.emplace_back(fmt::format("{} sample {}, {} with hash", name, to_text(index), field),
                         hash_text(part_of(field, tensor).hash));
    }
  }
}

std::string bits_hash(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
  return hash_text(
      content_hash({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()}));
}

// The device whose tensors NCCL carries, chosen as plan_device does.
at::Device device_of_rank(const RunConfig& config, const ParallelPlan& plan) {
  if (plan.backend != Backend::nccl) return at::kCPU;
  const int64_t asked = read_device_name(config.run.device)->index;
  return {at::kCUDA, static_cast<at::DeviceIndex>(asked >= 0 ? asked : plan.local_rank)};
}

}  // namespace

void check_same_config(const std::shared_ptr<Communicator>& ranks, const RunConfig& config) {
  if (ranks->world_size() == 1) return;
  Ranks(ranks, {}).check_alike(values_of_all_ranks(config));
}

void check_same_data(const std::shared_ptr<Communicator>& ranks, Facts facts, const Dataset& train,
                     const Dataset* eval) {
  if (ranks->world_size() == 1) return;
  add_samples("data.train", train, facts);
  if (eval != nullptr) add_samples("data.eval", *eval, facts);
  Ranks(ranks, {}).check_alike(facts);
}

void check_same_start(const std::shared_ptr<Communicator>& ranks, const TensorMap& weights,
                      const TensorMap& optimizer) {
  if (ranks->world_size() == 1) return;
  Facts facts;
  for (const auto& [name, tensor] : weights) {
    facts.emplace_back("hash of the first weights " + name, bits_hash(tensor));
  }
  for (const auto& [name, tensor] : optimizer) {
    facts.emplace_back("hash of the optimizer's first state " + name, bits_hash(tensor));
  }
  Ranks(ranks, {}).check_alike(facts);
}

std::shared_ptr<Communicator> connect(const RunConfig& config, const World& world,
                                      const AcceleratorKind& accelerators) {
  if (world.size == 1) return single_communicator();
  Machine machine = with_world(probe_machine(), world);
  probe_accelerators(machine, config.run.device, accelerators);
  RunConfig alike = config;  // evaluations and predictions have no stages: any number of ranks
  alike.parallel.pipeline = 1;
  const ParallelPlan plan = plan_connection(alike, machine);
  const auto timeout = std::chrono::duration<double>(plan.timeout_seconds);
  // If the plan chose NCCL, Gloo replaces it when the NCCL plugin is missing.
  const bool chosen = config.parallel.backend == "auto" && plan.backend == Backend::nccl;
  return make_communicator(
      world, {.backend = chosen ? "auto" : name(plan.backend),
              .rendezvous = config.parallel.rendezvous,
              .device = device_of_rank(config, plan),
              .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)});
}

void check_is_launched(const RunConfig& config, const Communicator& ranks) {
  const int64_t stages = config.parallel.pipeline;
  if (config.parallel.ranks != "processes" || stages == 1 || ranks.world_size() > 1) return;
  throw ConfigError(fmt::format(
      "[run] parallel.pipeline is {0}, and this is one process; start {0} or a multiple (tanren "
      "launch -n {0} run …), or set parallel.ranks = \"threads\"",
      to_text(stages)));
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
    settle(ranks);
    throw CheckpointError(
        fmt::format("[run] rank {} does not see {}; put the run folder where every machine reaches "
                    "it under one path",
                    rank, asked));
  }
  return asked;
}

}  // namespace tanren
