#include "tanren/data/single_thread.h"

#include <ATen/Parallel.h>

// Defined in libgomp. Declared here because without -fopenmp there may be no omp.h.
extern "C" void omp_set_num_threads(int);

namespace tanren {

void stay_single_threaded() {
  at::get_num_threads();  // sets up torch on this thread now; later it would undo our setting
  omp_set_num_threads(1);
}

}  // namespace tanren
