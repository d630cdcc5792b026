#include "tanren/run/replicas.h"

#include "tanren/base/error_line.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/comm/thread_group.h"
#include "tanren/plan/planner.h"
#include "tanren/run/mesh.h"
#include "tanren/train/build.h"

#include <ATen/core/Tensor.h>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tanren {

void on_thread_ranks(const Plan& plan,
                     const std::function<void(const Plan&, std::shared_ptr<const Ranks>)>& work) {
  const auto count = static_cast<int>(plan.parallel.thread_ranks());
  const auto timeout = std::chrono::duration<double>(plan.parallel.timeout_seconds);
  const ThreadGroup group(
      count, {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)});
  const auto open_windows = std::make_shared<std::atomic<int>>(0);
  std::mutex mutex;
  std::exception_ptr first;
  // Keeps the first exception and cancels the group. Called before parts of the group end the other
  // ranks, because their exceptions are not the first.
  const auto end_with_current = [&](int rank) {
    const std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
    group.cancel(fmt::format("rank {}: {}", rank, line_of_current()));
  };
  const auto run_rank = [&](int rank) {
    try {
      const Plan own = replica_plan(plan, rank);
      const auto run_one = [&](const std::shared_ptr<const Ranks>& ranks) {
        try {
          work(own, ranks);
        } catch (...) {
          end_with_current(rank);
          throw;
        }
      };
      with_mesh(group.communicator(rank), own.parallel, run_one, open_windows);
    } catch (...) {
      end_with_current(rank);
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 1; rank < count; ++rank) threads.emplace_back(run_rank, rank);
  run_rank(0);
  threads.clear();  // joins
  if (first) std::rethrow_exception(first);
}

namespace {

// Copies the weights. Skips a tensor of another shape, because the comparison of ranks reports it.
void copy_weights(const torch::nn::Module& from, const torch::nn::Module& to) {
  const TensorMap given = tensors_of(from);
  for (const auto& [name, tensor] : tensors_of(to)) {
    const at::Tensor* const found = given.find(name);
    if (found == nullptr || found->sizes() != tensor.sizes()) continue;
    tensor.detach().copy_(found->detach());
  }
}

}  // namespace

RunState StatesInTurn::make(const Parts& parts) {
  const RankAxis& world = parts.ranks->world();
  std::optional<RunState> state;
  if (!world.is_first()) {
    const std::lock_guard lock(turn_);
    Task task = make_task_();
    copy_weights(*first_.module, *task.module);
    state.emplace(build_run_state(std::move(task), parts));
  }
  gather_numbers(world.communicator(), {0});
  if (world.is_first()) state.emplace(build_run_state(std::move(first_), parts));
  return std::move(*state);
}

}  // namespace tanren
