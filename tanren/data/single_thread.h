// For threads that make batches: a dataset's torch calls then stay on the calling thread.
#pragma once

namespace tanren {

// Keeps torch calls of the calling thread on this thread, permanently. Without this, every thread
// that enters a parallel region starts its own OpenMP team in addition to the step's team.
void stay_single_threaded();

}  // namespace tanren
