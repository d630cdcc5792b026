// parallel_for: at::parallel_for whatever the compiler and its options. Torch's own is a template that is
// serial, without a word, in each file that is compiled without -fopenmp, and clang's -fopenmp brings
// another runtime beside the libgomp of libtorch, with threads of its own. This one asks that libgomp.
#pragma once

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include <cstdint>
#include <functional>

namespace tanren {

// work(from, to) over [begin, end) on the threads of torch's operators; no part but the last is smaller than
// `grain`. The parts are those of at::parallel_for, and so is what a range of one part, one thread or a call
// from inside of another does: one call on this thread. An exception of a part is thrown again.
void run_in_parts(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& work);

template <class Work>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Work& work) {
  if (begin < end) run_in_parts(begin, end, grain, std::cref(work));
}

}  // namespace tanren
