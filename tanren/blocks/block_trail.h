// BlockTrail: which blocks (run_block) this thread's forward went through, by the sequence numbers
// of the autograd nodes that were made in them. With it, backward and errors can name their block.
// Recorded inside a BlockTrailScope only; the step opens one for each forward and each backward. A
// forward's passages are a value, because other forwards may run before its backward does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// A number above 0 for the name, the same for the rest of the process; 0 after 4095 names.
uint16_t block_id(std::string_view name);
// The name with this number; empty for 0. Both functions are thread-safe.
std::string block_name(uint16_t id);

struct BlockPassage {
  uint16_t id;
  uint64_t first, last;  // sequence numbers [first, last)
  bool can_recompute;    // the block was called with its input (block.h)
};
// In the order in which they ended: an inner block comes before its outer one.
using BlockPassages = std::vector<BlockPassage>;

struct BlockTrail {
  bool recording = false;
  BlockPassages passages;
  uint16_t failed = 0;  // innermost block that an exception left

  // The innermost block that made the node with this sequence number; 0: unknown.
  uint16_t block_of(uint64_t sequence_number) const;
};

// This thread's trail, always the same object.
BlockTrail& block_trail();

// Records a trail. At its end it restores the thread's earlier trail, except for `failed`, which
// stays.
class BlockTrailScope {
 public:
  // For one forward and its backward.
  BlockTrailScope();
  // For a forward alone, whose backward opens another scope with the same passages. Continues with
  // `passages`, and moves them back there at its end.
  explicit BlockTrailScope(BlockPassages& passages);
  ~BlockTrailScope();
  BlockTrailScope(const BlockTrailScope&) = delete;
  BlockTrailScope& operator=(const BlockTrailScope&) = delete;

 private:
  BlockPassages* kept_;  // null: they end with the scope
  BlockPassages outer_;
  bool outer_recording_;
};

// One block, opened by run_block. Marks new memory with the block (memory_tag.h).
class BlockScope {
 public:
  explicit BlockScope(std::string_view name, bool can_recompute = false)
      : can_recompute_(can_recompute) {
    if (block_trail().recording) enter(name);
  }
  ~BlockScope() {
    if (id_ != 0) leave();
  }
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  void enter(std::string_view name);
  void leave();

  bool can_recompute_;
  uint16_t id_ = 0, outer_ = 0;
  int exceptions_ = 0;
  uint64_t first_ = 0;
};

}  // namespace tanren
