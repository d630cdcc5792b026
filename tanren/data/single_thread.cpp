#include "tanren/data/single_thread.h"

#include <ATen/Parallel.h>

// libgomp has it; without -fopenmp there is no omp.h to rely on.
extern "C" void omp_set_num_threads(int);

namespace tanren {

void stay_single_threaded() {
  at::get_num_threads();  // does torch's own set-up of this thread, which would undo ours later
  omp_set_num_threads(1);
}

}  // namespace tanren
