#include "tanren/memory/huge_arena.h"

#include <algorithm>

#include <sys/mman.h>

namespace tanren {

namespace {

constexpr size_t kSmallest = size_t{64} << 20;
// The first bytes have small pages: a process that needs no more would hold huge ones mostly empty.
constexpr size_t kSmallPages = 2 * HugeArena::kGranule;
constexpr size_t kOpenStep = size_t{64} << 20;  // the arena is opened in steps of it

size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

}  // namespace

HugeArena::HugeArena(size_t address_space) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  // A limit on address space may refuse this size; a smaller arena is still worth having.
  for (size_t size = round_up(address_space, kGranule); size >= kSmallest; size /= 2) {
    const size_t with_slack = round_up(size, kGranule) + kGranule;
    void* reserved = ::mmap(nullptr, with_slack, PROT_NONE, kFlags, -1, 0);
    if (reserved == MAP_FAILED) continue;
    reserved_ = reserved;
    reserved_size_ = with_slack;
    base_ = round_up(reinterpret_cast<uintptr_t>(reserved), kGranule);
    capacity_ = with_slack - kGranule;
    break;
  }
  if (capacity_ == 0) return;
  users_.resize(capacity_ / kGranule);
  held_by_granule_.resize(capacity_ / kGranule);
  insert_free(0, capacity_);
}

HugeArena::~HugeArena() {
  if (reserved_ != nullptr) ::munmap(reserved_, reserved_size_);
}

void HugeArena::insert_free(size_t offset, size_t size) {
  free_by_offset_.emplace(offset, size);
  free_by_size_.emplace(size, offset);
}

void* HugeArena::allocate(size_t bytes) {
  if (bytes > capacity_) return nullptr;
  const size_t size = rounded(bytes);
  // Best fit, the lowest address among equals, so that untouched space stays whole and is used
  // last.
  const auto found = free_by_size_.lower_bound({size, 0});
  if (found == free_by_size_.end()) return nullptr;
  const size_t hole = found->first, offset = found->second;
  if (!open(offset + size)) return nullptr;
  // Reuses the hole's map nodes for the rest of the hole, so that nothing here can fail half-way.
  auto by_offset = free_by_offset_.extract(offset);
  auto by_size = free_by_size_.extract(found);
  if (hole > size) {
    by_offset.key() = offset + size;
    by_offset.mapped() = hole - size;
    by_size.value() = {hole - size, offset + size};
    free_by_offset_.insert(std::move(by_offset));
    free_by_size_.insert(std::move(by_size));
  }

  used_ += size;
  peak_ = std::max(peak_, used_);
  if (++allocations_ % kWindow == 0) last_peak_ = std::exchange(peak_, used_);
  take_granules(offset, size);
  if (held_ > allowance()) give_back(held_ - allowance());
  return reinterpret_cast<void*>(base_ + offset);
}

void HugeArena::free(void* block, size_t bytes) {
  size_t offset = reinterpret_cast<uintptr_t>(block) - base_;
  size_t size = rounded(bytes);
  used_ -= size;
  leave_granules(offset, size);
  auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      free_by_size_.erase({before->second, before->first});
      free_by_offset_.erase(before);
    }
  }
  if (next != free_by_offset_.end() && next->first == offset + size) {
    size += next->second;
    free_by_size_.erase({next->second, next->first});
    free_by_offset_.erase(next);
  }
  insert_free(offset, size);
}

size_t HugeArena::trim(size_t keep) {
  peak_ = last_peak_ = used_;
  const size_t cached = cached_granules_ * kGranule;
  return cached > keep ? give_back(cached - keep) : 0;
}

bool HugeArena::open(size_t end) {
  if (end <= opened_) return true;
  const size_t wanted = std::min(round_up(end, kOpenStep), capacity_);
  void* start = reinterpret_cast<void*>(base_ + opened_);
  if (::mprotect(start, wanted - opened_, PROT_READ | PROT_WRITE) != 0) return false;
  const size_t huge = std::max(opened_, kSmallPages);
  if (huge < wanted) {  // if the kernel refuses, pages stay small
    ::madvise(reinterpret_cast<void*>(base_ + huge), wanted - huge, MADV_HUGEPAGE);
  }
  opened_ = wanted;
  return true;
}

void HugeArena::take_granules(size_t offset, size_t size) {
  for (size_t i = offset / kGranule; i <= (offset + size - 1) / kGranule; ++i) {
    if (!held_by_granule_[i]) {
      held_by_granule_[i] = 1;
      held_ += kGranule;
    } else if (users_[i] == 0) {
      --cached_granules_;
    }
    ++users_[i];
  }
}

void HugeArena::leave_granules(size_t offset, size_t size) {
  for (size_t i = offset / kGranule; i <= (offset + size - 1) / kGranule; ++i) {
    if (--users_[i] == 0) ++cached_granules_;
  }
}

// The default allocator would hold the peak too. The rest is for blocks that do not fit into holes.
size_t HugeArena::allowance() const {
  const size_t peak = std::max(peak_, last_peak_);
  return peak + peak / 32 + kGranule;
}

// Works from the top down, because best fit prefers low addresses and needs high ones last.
size_t HugeArena::give_back(size_t bytes) {
  size_t given = 0;
  for (size_t end = opened_ / kGranule; end > 0 && given < bytes && cached_granules_ > 0;) {
    size_t begin = end;
    while (begin > 0 && given < bytes && held_by_granule_[begin - 1] && users_[begin - 1] == 0) {
      --begin;
      held_by_granule_[begin] = 0;
      held_ -= kGranule;
      --cached_granules_;
      given += kGranule;
    }
    if (begin < end) {
      ::madvise(reinterpret_cast<void*>(base_ + begin * kGranule), (end - begin) * kGranule,
                MADV_DONTNEED);
      end = begin;
    } else {
      --end;
    }
  }
  return given;
}

}  // namespace tanren
