// MemoryTrace: the allocations and releases of tensors, in order, each with its purpose. Made by
// TraceScope (trace_scope.h) in a real run and in a dry run (dry_scope.h). Not thread-safe.
#pragma once

#include "tanren/base/memory_tag.h"

#include <cstdint>
#include <vector>

namespace tanren {

struct MemoryEvent {
  int64_t bytes = 0;                    // above 0: allocated; below: released
  uint32_t tensor = 0;                  // number of the tensor's memory in this trace, from 0
  MemoryKind kind = MemoryKind::other;  // of the MemoryScope that it was made in
  uint16_t block = 0;                   // block_trail.h
};

using MemoryTrace = std::vector<MemoryEvent>;

}  // namespace tanren
