// BlockTrail: which blocks (run_block) this thread's forward went through, by the sequence numbers of
// the autograd nodes that were made in them; so that backward, and an error, can name the block they
// are in. Recorded only while somebody asks for it: the step, for one microstep at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// A number above 0 for the name, the same for the rest of the process; 0 beyond 4095 names.
uint16_t block_id(std::string_view name);
// Empty for 0. Thread-safe, as block_id.
std::string block_name(uint16_t id);

struct BlockTrail {
  struct Passage {
    uint16_t id;
    uint64_t first, last;  // sequence numbers [first, last)
    bool can_recompute;    // it was given its input (block.h)
  };
  bool recording = false;
  std::vector<Passage> passages;
  uint16_t failed = 0;  // innermost block that an exception left

  // The innermost block that made the node with this number; 0: none known.
  uint16_t block_of(uint64_t sequence_number) const;
};

// This thread's.
BlockTrail& block_trail();

// Starts a trail, and ends it: for one forward and backward.
class BlockTrailScope {
 public:
  BlockTrailScope();
  ~BlockTrailScope();
  BlockTrailScope(const BlockTrailScope&) = delete;
  BlockTrailScope& operator=(const BlockTrailScope&) = delete;
};

// One block: run_block's. Marks new memory with it (memory_tag.h).
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
