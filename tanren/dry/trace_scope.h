// TraceScope: while it lives, records the allocations and releases of this thread's tensors, on any
// device whose allocator reports to torch's profiler (ours and CUDA's do). Autograd's threads
// inherit it. For analysis, not for training: every tensor costs a lock. Not together with torch's
// profiler. Used by tanren anatomy and by tests of predictions.
#pragma once

#include "tanren/dry/memory_trace.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

namespace tanren {

class TraceScope {
 public:
  TraceScope();
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  // The trace so far. Memory that was allocated before the scope is not in it, nor is its release.
  MemoryTrace trace() const;
  // Events so far; safe from any thread.
  size_t size() const;

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;
  c10::DebugInfoGuard guard_;
};

}  // namespace tanren
