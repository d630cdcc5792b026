#include "tanren/ops/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>

// libgomp defines these. They are declared here because without -fopenmp there may be no omp.h.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" void GOMP_parallel(void (*work)(void*), void* data, unsigned threads, unsigned flags);
extern "C" int omp_get_num_threads();
extern "C" int omp_get_thread_num();

namespace tanren {

namespace {

struct Team {
  int64_t begin, end, grain;
  const std::function<void(int64_t, int64_t)>& work;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error = nullptr;
};

void run_part(Team& team, int64_t from, int64_t to, int thread) {
  const at::internal::ThreadIdGuard number(thread);
  const c10::ParallelGuard parallel(true);
  team.work(from, to);
}

// Every thread of the team calls this.
void run_own_part(void* of_team) {
  Team& team = *static_cast<Team*>(of_team);
  const int64_t size = team.end - team.begin;
  int64_t parts = omp_get_num_threads();
  if (team.grain > 0) parts = std::min(parts, at::divup(size, team.grain));
  const int thread = omp_get_thread_num();
  const int64_t length = at::divup(size, parts);
  const int64_t from = team.begin + thread * length;
  if (from >= team.end) return;
  try {
    run_part(team, from, std::min(team.end, from + length), thread);
  } catch (...) {
    if (!team.failed.test_and_set()) team.error = std::current_exception();
  }
}

}  // namespace

void run_in_parts(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& work) {
  at::internal::lazy_init_num_threads();
  Team team{.begin = begin, .end = end, .grain = grain, .work = work};
  const int64_t size = end - begin;
  if (size <= grain || size <= 1 || at::in_parallel_region() || at::get_num_threads() <= 1) {
    run_part(team, begin, end, 0);
    return;
  }
  GOMP_parallel(run_own_part, &team, /*threads=*/0, /*flags=*/0);
  if (team.error) std::rethrow_exception(team.error);
}

}  // namespace tanren
