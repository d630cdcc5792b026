// For threads that make batches: keeps a dataset's torch calls on the calling thread.
#pragma once

namespace tanren {

// Otherwise every thread that enters a parallel region starts its own OpenMP team beside the
// step's. Applies to the calling thread, permanently.
void stay_single_threaded();

}  // namespace tanren
