// MemoryTimeline: the memory that one training step held, moment by moment, and its owners: the
// kind and block of each tensor, from a trace (dry/memory_trace.h). Pure functions, for
// anatomy/anatomy.
#pragma once

#include "tanren/anatomy/operator_recorder.h"
#include "tanren/dry/memory_trace.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// The pass that begins with this event of the trace.
struct PassMark {
  size_t event = 0;
  Pass pass = Pass::update;
};

// The tensors of one kind, made in one block.
struct MemoryOwner {
  MemoryKind kind = MemoryKind::other;
  std::string block;           // empty: outside of any block
  std::vector<int64_t> bytes;  // at each moment
  int64_t at_peak = 0;
};

struct MemoryTimeline {
  std::vector<MemoryOwner> owners;  // from the bottom of the plot up: longest-lived first
  std::vector<int64_t> total;       // at each moment
  std::vector<PassMark> passes;     // `event` is an index of a moment
  size_t peak_moment = 0;
  int64_t peak_bytes = 0;
  int64_t before_bytes = 0, after_bytes = 0;
  std::array<int64_t, kNumMemoryKinds> at_peak = {};    // by lifetime: see memory_timeline_of
  std::array<int64_t, kNumMemoryKinds> as_tagged = {};  // at the peak, as a prediction counts them
};

// The timeline of the step that begins with event `begin` of the trace, in at most `moments`
// moments, the peak among them. Memory made in forward counts as activations, but as temporaries if
// it is freed in the same pass. Memory made in backward or update counts as temporaries.
MemoryTimeline memory_timeline_of(const MemoryTrace& trace, size_t begin,
                                  const std::vector<PassMark>& passes, size_t moments);

}  // namespace tanren
