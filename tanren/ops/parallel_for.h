// parallel_for: at::parallel_for for any compiler and options. Torch's template is silently serial
// in each file compiled without -fopenmp, and clang's -fopenmp adds a second runtime with its own
// threads beside libtorch's libgomp. This one calls libtorch's libgomp.
#pragma once

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include <cstdint>
#include <functional>

namespace tanren {

// Calls work(from, to) for parts of [begin, end) on the threads of torch's operators; only the last
// part may be smaller than `grain`. The parts are those of at::parallel_for. As there, a range of
// one part, a single thread or a nested call makes one call on this thread. An exception of a part
// is rethrown.
void run_in_parts(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& work);

template <class Work>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Work& work) {
  if (begin < end) run_in_parts(begin, end, grain, std::cref(work));
}

}  // namespace tanren
