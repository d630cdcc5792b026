// For threads that make batches: keeps what a dataset does with torch on the calling thread.
#pragma once

namespace tanren {

// Every thread that enters a parallel region would otherwise start an OpenMP team of its own beside
// the step's. Holds for the calling thread, for good.
void stay_single_threaded();

}  // namespace tanren
