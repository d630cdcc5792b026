// MemoryTimeline: what one training step held in memory, moment by moment, and who owned it: the kind and
// block of each tensor, from a trace (dry/memory_trace.h). Pure functions, for anatomy/anatomy.
#pragma once

#include "tanren/anatomy/operator_recorder.h"
#include "tanren/dry/memory_trace.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// From this event of the trace on.
struct PassMark {
  size_t event = 0;
  Pass pass = Pass::update;
};

// The tensors of one kind, made in one block.
struct MemoryOwner {
  MemoryKind kind = MemoryKind::other;
  std::string block;           // empty: outside of any
  std::vector<int64_t> bytes;  // at each moment
  int64_t at_peak = 0;
};

struct MemoryTimeline {
  std::vector<MemoryOwner> owners;  // those below in the plot first: what lives longest
  std::vector<int64_t> total;       // at each moment
  std::vector<PassMark> passes;     // `event` is a moment
  size_t peak_moment = 0;
  int64_t peak_bytes = 0;
  int64_t before_bytes = 0, after_bytes = 0;
  std::array<int64_t, kNumMemoryKinds> at_peak = {};    // by lifetime: see memory_timeline_of
  std::array<int64_t, kNumMemoryKinds> as_tagged = {};  // at the peak, as a prediction counts them
};

// The step that begins with event `begin` of the trace, in at most `moments` moments, the peak among
// them. What forward made and gave back in the same pass counts as temporaries, what backward gave
// back as activations; what backward and update made and gave back as temporaries.
MemoryTimeline memory_timeline_of(const MemoryTrace& trace, size_t begin,
                                  const std::vector<PassMark>& passes, size_t moments);

}  // namespace tanren
