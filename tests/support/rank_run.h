// Small runs on several ranks that are threads of the test, over a ThreadGroup or over Gloo's real
// connections: each rank drives its own run update by update.
#pragma once

#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/train/batch_stream.h"
#include "tanren/train/train_loop.h"
#include "tests/support/tiny_run.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace tanren::testing {

// The plan of rank `rank` of `world_size` on a machine with at most `devices` accelerators.
inline Plan rank_plan(const RunConfig& config, const Task& task, const Dataset& dataset, int rank,
                      int world_size, size_t devices = 16) {
  ModelProfile profile;
  profile_parameters(*task.module, profile);
  profile_objectives(task, profile);
  profile.train_samples = dataset.size();
  profile.metrics = task.metrics;
  profile.classes = task.classes;
  profile.couples_samples = couples_samples(task);
  Machine machine;
  machine.rank = machine.local_rank = rank;
  machine.world_size = machine.local_ranks = world_size;
  machine.launcher = "test";
  probe_accelerators(machine, config.run.device, test_accelerators());
  auto& bytes = machine.accelerators.bytes;
  bytes.resize(std::min(bytes.size(), devices));
  return make_plan(config, machine, profile);
}

// A GPT, for 38 samples of TokenData in batches of 12: the fourth batch has 2 samples, so that some
// of 3 or 4 ranks have none.
inline RunConfig ranks_config(const std::string& mode) {
  auto config = tiny_config("gpt2");
  config.model.num_layers = 2;
  config.model.hidden_size = 16;
  config.model.num_heads = 2;
  config.model.dropout = 0.2;
  config.model.freeze = {"transformer.h.0.ln_1.*"};
  config.batch.global_batch = "12";
  config.clip.norm = 0.3;
  set_precision(config, mode);
  config.precision.initial_scale = "1024";
  config.parallel.first_bucket_mb = 1.0 / 1024;
  config.parallel.bucket_mb = 4.0 / 1024;
  return config;
}

// The run of one rank. Ranks build theirs one at a time: models draw from the process's generator.
struct RankRun {
  const Dataset& dataset;
  Parts parts;
  RunState state;
  std::unique_ptr<BatchStream> batches;

  RankRun(const RunConfig& config, const Dataset& data, Communicator& comm,
          const std::function<Task()>& make_task = {},
          std::shared_ptr<std::atomic<int>> open_windows = nullptr, size_t devices = 16)
      : dataset(data) {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    Task task = make_task ? make_task() : build_task(config, ModelRegistry(), data);
    const Plan plan = rank_plan(config, task, data, comm.rank(), comm.world_size(), devices);
    parts = build_parts(plan, nullptr);
    parts.ranks =
        std::make_shared<Ranks>(std::shared_ptr<Communicator>(&comm, [](Communicator*) {}),
                                plan.parallel, std::move(open_windows));
    state = build_run_state(std::move(task), parts);
    batches = std::make_unique<BatchStream>(make_loader(state, parts, dataset), *parts.ranks);
  }

  StepReport step() {
    const GlobalBatch batch = batches->next();
    return *update(state, parts, batch);
  }
  at::Tensor weights() const {
    state.settle();
    std::vector<at::Tensor> all;
    for (const auto& p : state.task.module->parameters()) all.push_back(p.detach().flatten());
    return at::cat(all).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  at::Tensor gradients() const {
    return at::cat(state.phases.front().objectives.front().gradients.flat()).clone().cpu();
  }
  Objective& objective() { return state.phases.front().objectives.front(); }
};

// Runs `work` on `world_size` ranks over "threads" or "gloo"; one rank has the single communicator.
inline void on_engine(const std::string& engine, int world_size,
                      const std::function<void(Communicator&)>& work) {
  if (world_size == 1) {
    work(*single_communicator());
  } else if (engine == "gloo") {
    on_gloo_ranks(world_size, work);
  } else {
    on_ranks(world_size, work);
  }
}

}  // namespace tanren::testing
