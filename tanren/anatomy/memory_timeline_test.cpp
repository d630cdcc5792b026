#include "tanren/anatomy/memory_timeline.h"

#include "tanren/blocks/block_trail.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tanren {
namespace {

constexpr auto kWeights = MemoryKind::weights;
constexpr auto kActivations = MemoryKind::activations;
constexpr auto kTemporaries = MemoryKind::temporaries;

int64_t of(const MemoryTimeline& timeline, MemoryKind kind) {
  return timeline.at_peak.at(static_cast<size_t>(kind));
}

TEST(MemoryTimelineTest, a_trace_without_a_step_tells_what_is_held) {
  const MemoryTrace trace{{100, 0, kWeights, 0}};
  const MemoryTimeline timeline = memory_timeline_of(trace, 1, {{1, Pass::update}}, 10);
  EXPECT_EQ(timeline.before_bytes, 100);
  EXPECT_EQ(timeline.peak_bytes, 100);
  EXPECT_EQ(of(timeline, kWeights), 100);
  EXPECT_TRUE(timeline.total.empty());
}

// Forward is events 1 to 4, backward 5 to 7, update 8 and 9.
MemoryTrace whole_step() {
  const uint16_t block = block_id("layer.0");
  return {{100, 0, kWeights, 0},         // before the step
          {10, 1, kActivations, block},  // kept for backward
          {7, 2, kActivations, block},   // forward only
          {-7, 2, kActivations, block},  {3, 3, kActivations, 0},
          {20, 4, kTemporaries, 0},  // in backward: the peak, 133
          {-10, 1, kActivations, block}, {-20, 4, kTemporaries, 0},
          {-3, 3, kActivations, 0},      {5, 5, kTemporaries, 0}};
}
const std::vector<PassMark> kPasses{
    {1, Pass::update}, {1, Pass::forward}, {5, Pass::backward}, {8, Pass::update}};

TEST(MemoryTimelineTest, kinds_go_by_the_lifetime_of_a_tensor) {
  const MemoryTimeline timeline = memory_timeline_of(whole_step(), 1, kPasses, 100);
  EXPECT_EQ(timeline.peak_bytes, 133);
  EXPECT_EQ(of(timeline, kWeights), 100);
  EXPECT_EQ(of(timeline, kActivations), 13);
  EXPECT_EQ(of(timeline, kTemporaries), 20);
  EXPECT_EQ(timeline.after_bytes, 105);
  EXPECT_EQ(timeline.peak_moment, 4u);
  EXPECT_EQ(timeline.total, (std::vector<int64_t>{110, 117, 110, 113, 133, 123, 103, 100, 105}));
  // Memory that forward itself freed is no activation, although its scope tagged it so.
  const auto short_lived =
      std::find_if(timeline.owners.begin(), timeline.owners.end(), [](const MemoryOwner& owner) {
        return owner.kind == kTemporaries && owner.block == "layer.0";
      });
  ASSERT_NE(short_lived, timeline.owners.end());
  EXPECT_EQ(short_lived->bytes[1], 7);
}

TEST(MemoryTimelineTest, the_owners_of_a_moment_sum_to_its_total_in_any_number_of_moments) {
  for (const size_t moments : {1u, 2u, 3u, 100u}) {
    const MemoryTimeline timeline = memory_timeline_of(whole_step(), 1, kPasses, moments);
    ASSERT_LE(timeline.total.size(), moments);
    for (size_t i = 0; i < timeline.total.size(); ++i) {
      int64_t sum = 0;
      for (const MemoryOwner& owner : timeline.owners) sum += owner.bytes.at(i);
      EXPECT_EQ(sum, timeline.total[i]) << moments << " moments, number " << i;
    }
    EXPECT_EQ(*std::max_element(timeline.total.begin(), timeline.total.end()), 133)
        << "the peak is among any " << moments;
    EXPECT_EQ(timeline.total.at(timeline.peak_moment), 133);
  }
}

TEST(MemoryTimelineTest, a_microstep_gives_back_what_the_one_before_it_did_not_make) {
  // Tensor 0 is made in one forward and freed in the next. It outlives the pass that made it, so it
  // is an activation and not a temporary.
  const MemoryTrace trace{
      {8, 0, kActivations, 0}, {8, 1, kActivations, 0}, {-8, 0, kActivations, 0}};
  const MemoryTimeline timeline = memory_timeline_of(
      trace, 0, {{0, Pass::forward}, {1, Pass::backward}, {1, Pass::forward}}, 10);
  EXPECT_EQ(timeline.peak_bytes, 16);
  EXPECT_EQ(of(timeline, kActivations), 16);
}

}  // namespace
}  // namespace tanren
