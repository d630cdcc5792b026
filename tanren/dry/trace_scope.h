// TraceScope: notes what this thread's tensors take and give back while it lives, on any device
// whose allocator reports to torch's profiler (ours and CUDA's do). Autograd's threads inherit it.
// For looking, not for training: every tensor costs a lock. Not together with torch's profiler.
// Used by tanren anatomy and by tests of predictions.
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

  // So far. What was made before the scope is not in it, and given back unnoticed.
  MemoryTrace trace() const;
  // Events so far; safe from any thread.
  size_t size() const;

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;
  c10::DebugInfoGuard guard_;
};

}  // namespace tanren
