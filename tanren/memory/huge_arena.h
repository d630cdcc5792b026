// HugeArena: one range of address space from which large blocks are cut, best fit, and joined again
// when freed, so that a step finds the pages (huge ones if the kernel has them) of the step before.
// Invariant: pages held ≤ the largest recent sum of blocks × 33/32 + one granule, as far as free
// whole granules allow. Not thread-safe: CpuAllocator locks around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tanren {

class HugeArena {
 public:
  static constexpr size_t kGranule = size_t{2} << 20;  // pages are taken and given back by it
  static constexpr size_t kQuantum = 512;              // block sizes are multiples of it
  static constexpr size_t kWindow = size_t{1} << 16;  // allocations after which peaks are forgotten

  // Reserves at most `address_space` bytes; takes none of the machine's memory. If even 64 MiB are
  // refused the arena is empty, and every allocate() returns null.
  explicit HugeArena(size_t address_space);
  ~HugeArena();
  HugeArena(const HugeArena&) = delete;
  HugeArena& operator=(const HugeArena&) = delete;

  // The size of a block for `bytes`.
  static size_t rounded(size_t bytes) { return (bytes + kQuantum - 1) / kQuantum * kQuantum; }

  // Start of a block of rounded(bytes), aligned to kQuantum; null if no room (or no memory) is
  // left.
  void* allocate(size_t bytes);
  // `bytes` as it was given to allocate().
  void free(void* block, size_t bytes);
  // Gives free pages back to the system until at most `keep` bytes of whole granules are cached,
  // and forgets past peaks. Returns the bytes given back.
  size_t trim(size_t keep = 0);

  // Gives at least `bytes` (if so much is cached) back to the system; past peaks are remembered.
  size_t give_back(size_t bytes);

  bool owns(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return address - base_ < capacity_;
  }
  size_t capacity() const { return capacity_; }
  size_t used_bytes() const { return used_; }  // sum of the blocks
  size_t held_bytes() const { return held_; }  // upper bound of the pages taken from the system

 private:
  using Extent = std::pair<size_t, size_t>;  // size, offset

  void insert_free(size_t offset, size_t size);
  bool open(size_t end);
  void take_granules(size_t offset, size_t size);
  void leave_granules(size_t offset, size_t size);
  size_t allowance() const;

  uintptr_t base_ = 0;
  size_t capacity_ = 0;
  void* reserved_ = nullptr;
  size_t reserved_size_ = 0;
  size_t opened_ = 0;  // [0, opened_) may be read and written
  std::set<Extent> free_by_size_;
  std::map<size_t, size_t> free_by_offset_;
  std::vector<uint16_t> users_;  // per granule: blocks that touch it
  std::vector<uint8_t> held_by_granule_;
  size_t used_ = 0, held_ = 0, cached_granules_ = 0;
  size_t peak_ = 0, last_peak_ = 0;  // of used_, in this window of allocations and the one before
  size_t allocations_ = 0;
};

}  // namespace tanren
