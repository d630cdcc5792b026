#include "tanren/memory/huge_arena.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

namespace tanren {
namespace {

constexpr size_t kMega = size_t{1} << 20;

// Resident bytes of the mapping that holds `address`.
size_t resident(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    size_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= wanted && wanted < end;
    } else if (inside && std::sscanf(line.c_str(), "Rss: %zu kB", &kilobytes) == 1) {
      return kilobytes << 10;
    }
  }
  return 0;
}

TEST(HugeArena, refuses_what_it_has_no_room_for) {
  HugeArena arena(64 * kMega);
  EXPECT_EQ(arena.allocate(arena.capacity() + 1), nullptr);
  EXPECT_EQ(arena.used_bytes(), 0u);
  void* all = arena.allocate(arena.capacity());
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.free(all, arena.capacity());
  EXPECT_NE(arena.allocate(1), nullptr);
}

TEST(HugeArena, is_empty_where_address_space_is_refused) {
  HugeArena arena(1);
  EXPECT_EQ(arena.capacity(), 0u);
  EXPECT_EQ(arena.allocate(1), nullptr);
  EXPECT_FALSE(arena.owns(&arena));
}

TEST(HugeArena, joins_freed_neighbours_in_any_order) {
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    HugeArena arena(64 * kMega);
    const size_t third = arena.capacity() / 3 / HugeArena::kQuantum * HugeArena::kQuantum;
    std::array<void*, 3> blocks{};
    for (auto& block : blocks) block = arena.allocate(third);
    for (const int i : order) arena.free(blocks[static_cast<size_t>(i)], third);
    EXPECT_NE(arena.allocate(arena.capacity()), nullptr);
  }
}

TEST(HugeArena, a_block_wastes_less_than_a_quantum) {
  for (size_t bytes = 32 << 10; bytes < 64 * kMega; bytes = bytes * 9 / 8 + 13) {
    EXPECT_LT(HugeArena::rounded(bytes) - bytes, HugeArena::kQuantum);
  }
}

TEST(HugeArena, takes_the_smallest_hole_that_fits) {
  HugeArena arena(64 * kMega);
  void* large = arena.allocate(8 * kMega);
  void* between = arena.allocate(kMega);
  void* small = arena.allocate(4 * kMega);
  void* last = arena.allocate(kMega);
  arena.free(large, 8 * kMega);
  arena.free(small, 4 * kMega);
  EXPECT_EQ(arena.allocate(3 * kMega), small);
  EXPECT_EQ(arena.allocate(6 * kMega), large);
  arena.free(between, kMega);
  arena.free(last, kMega);
}

TEST(HugeArena, holds_no_more_pages_than_its_peak_needs) {
  HugeArena arena(256 * kMega);
  // Growing blocks never fit the hole before: free pages go back rather than adding up.
  for (size_t size = 8 * kMega; size < 40 * kMega; size += 3 * kMega) {
    void* block = arena.allocate(size);
    void* stopper = arena.allocate(HugeArena::kQuantum);
    std::memset(block, 1, size);
    arena.free(block, size);
    EXPECT_LE(arena.held_bytes(), size * 33 / 32 + 5 * HugeArena::kGranule);
    EXPECT_LE(resident(stopper), arena.held_bytes());
  }
}

TEST(HugeArena, trimming_returns_the_pages_and_keeps_what_is_alive) {
  HugeArena arena(256 * kMega);
  void* kept = arena.allocate(10 * kMega);
  void* freed = arena.allocate(100 * kMega);
  std::memset(kept, 7, 10 * kMega);
  std::memset(freed, 7, 100 * kMega);
  arena.free(freed, 100 * kMega);
  // The first bytes of the arena have small pages, and so a mapping of their own.
  const auto resident_here = [&] {
    return resident(kept) + resident(static_cast<char*>(kept) + 9 * kMega);
  };
  EXPECT_GE(resident_here(), 100 * kMega);
  EXPECT_EQ(arena.trim(200 * kMega), 0u);
  EXPECT_GE(arena.trim(), 96 * kMega);
  EXPECT_LE(resident_here(), 14 * kMega);
  for (size_t i = 0; i < 10 * kMega; i += 4096) EXPECT_EQ(static_cast<char*>(kept)[i], 7);
  void* again = arena.allocate(100 * kMega);
  EXPECT_EQ(static_cast<char*>(again)[50 * kMega], 0);
}

TEST(HugeArena, forgets_an_old_peak_by_itself) {
  HugeArena arena(256 * kMega);
  void* once = arena.allocate(100 * kMega);
  std::memset(once, 1, 100 * kMega);
  arena.free(once, 100 * kMega);
  for (size_t i = 0; i < 2 * HugeArena::kWindow; ++i) {
    void* block = arena.allocate(kMega);
    arena.free(block, kMega);
  }
  EXPECT_LE(arena.held_bytes(), 2 * kMega + 2 * HugeArena::kGranule);
}

TEST(HugeArena, random_blocks_never_overlap_and_the_counts_hold) {
  HugeArena arena(512 * kMega);
  std::mt19937 random(1);
  struct Live {
    unsigned char* data;
    size_t size;
    unsigned char mark;
  };
  std::vector<Live> live;
  size_t used = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 40 && random() % 2 == 0) {
      const size_t size = (32 << 10) + random() % (size_t{1} << (15 + random() % 8));
      auto* data = static_cast<unsigned char*>(arena.allocate(size));
      ASSERT_NE(data, nullptr);
      const auto mark = static_cast<unsigned char>(random());
      data[0] = data[size - 1] = mark;
      live.push_back({data, size, mark});
      used += HugeArena::rounded(size);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [data, size, mark] = live.back();
      ASSERT_EQ(data[0], mark);
      ASSERT_EQ(data[size - 1], mark);
      arena.free(data, size);
      used -= HugeArena::rounded(size);
      live.pop_back();
    }
    ASSERT_EQ(arena.used_bytes(), used);
  }
  for (const auto& block : live) arena.free(block.data, block.size);
  EXPECT_EQ(arena.used_bytes(), 0u);
  arena.trim();
  EXPECT_EQ(arena.held_bytes(), 0u);
  EXPECT_NE(arena.allocate(arena.capacity()), nullptr);
}

}  // namespace
}  // namespace tanren
