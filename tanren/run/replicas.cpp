#include "tanren/run/replicas.h"

#include "tanren/base/error_line.h"
#include "tanren/base/text.h"
#include "tanren/comm/thread_group.h"
#include "tanren/plan/planner.h"

#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tanren {

void on_replicas(const Plan& plan,
                 const std::function<void(const Plan&, std::shared_ptr<const Ranks>)>& work) {
  const auto count = static_cast<int>(plan.parallel.replicas);
  const auto timeout = std::chrono::duration<double>(plan.parallel.timeout_seconds);
  const ThreadGroup group(
      count, {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)});
  const auto open_windows = std::make_shared<std::atomic<int>>(0);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run_rank = [&](int rank) {
    try {
      const Plan own = replica_plan(plan, rank);
      work(own, std::make_shared<Ranks>(group.communicator(rank), own.parallel, open_windows));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      group.cancel(fmt::format("rank {}: {}", rank, line_of_current()));
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 1; rank < count; ++rank) threads.emplace_back(run_rank, rank);
  run_rank(0);
  threads.clear();  // joins
  if (first) std::rethrow_exception(first);
}

}  // namespace tanren
