#include "tanren/base/pipeline_schedule.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace tanren {
namespace {

using Actions = std::vector<PipelineAction>;

constexpr int64_t kMostStages = 8, kMostMicrobatches = 32;

PipelineDurations equal_durations(int64_t stages, double forward, double backward) {
  const auto count = static_cast<size_t>(stages);
  return {std::vector<double>(count, forward), std::vector<double>(count, backward)};
}

std::vector<Actions> all_stages(PipelineSchedule kind, int64_t stages, int64_t microbatches) {
  std::vector<Actions> all;
  for (int64_t stage = 0; stage < stages; ++stage) {
    all.push_back(pipeline_actions(kind, stage, stages, microbatches));
  }
  return all;
}

// "F0 F1 B0 B1"
std::string letters(const Actions& actions) {
  std::string text;
  for (const auto& action : actions) {
    if (!text.empty()) text += ' ';
    text += (action.act == Act::forward ? "F" : "B") + std::to_string(action.microbatch);
  }
  return text;
}

// Stages whose sends and receives both block. A send ends when its receive has been posted. A stage
// posts the receives of its current action and of the `ahead` actions after it.
class Rendezvous {
 public:
  Rendezvous(std::vector<Actions> actions, size_t ahead)
      : actions_(std::move(actions)), ahead_(ahead), stages_(actions_.size()) {}

  // Whether all stages come to the end of their actions.
  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < actions_.size(); ++s) moved = moves(s) || moved;
    }
    bool all = true;
    for (size_t s = 0; s < actions_.size(); ++s) all = all && stages_[s].at == actions_[s].size();
    return all;
  }
  int64_t num_messages() const { return num_messages_; }
  bool each_message_was_the_awaited_one() const { return in_order_; }

 private:
  struct Stage {
    size_t at = 0;  // the current action
    bool computed = false;
  };
  using Way = std::pair<int64_t, int64_t>;  // from, to

  int64_t count() const { return static_cast<int64_t>(actions_.size()); }

  // How many receives from stage `from` the stage `to` has posted so far.
  size_t posted(int64_t from, size_t to) const {
    size_t count_posted = 0;
    for (size_t i = 0; i < actions_[to].size() && i <= stages_[to].at + ahead_; ++i) {
      if (receives_from(actions_[to][i], count()) == from) ++count_posted;
    }
    return count_posted;
  }

  bool moves(size_t s) {
    Stage& stage = stages_[s];
    if (stage.at == actions_[s].size()) return false;
    const PipelineAction& action = actions_[s][stage.at];
    const auto own = static_cast<int64_t>(s);
    if (!stage.computed) {
      if (const auto from = receives_from(action, count())) {
        const auto& arrived = sent_[{*from, own}];
        size_t& taken = taken_[{*from, own}];
        if (taken == arrived.size()) return false;
        in_order_ = in_order_ && arrived[taken] == action.microbatch;
        ++taken;
      }
      stage.computed = true;
      return true;
    }
    if (const auto to = sends_to(action, count())) {
      auto& arrived = sent_[{own, *to}];
      if (posted(own, static_cast<size_t>(*to)) == arrived.size()) return false;
      arrived.push_back(action.microbatch);
      ++num_messages_;
    }
    stage = {stage.at + 1, false};
    return true;
  }

  std::vector<Actions> actions_;
  size_t ahead_;
  std::vector<Stage> stages_;
  std::map<Way, std::vector<int64_t>> sent_;  // microbatches
  std::map<Way, size_t> taken_;
  int64_t num_messages_ = 0;
  bool in_order_ = true;
};

TEST(PipelineSchedule, refuses_a_stage_that_does_not_exist_and_durations_of_other_stages) {
  EXPECT_THROW(pipeline_actions(PipelineSchedule::gpipe, 2, 2, 4), Error);
  EXPECT_THROW(pipeline_actions(PipelineSchedule::gpipe, -1, 2, 4), Error);
  EXPECT_THROW(pipeline_actions(PipelineSchedule::one_f_one_b, 0, 2, -1), Error);
  EXPECT_THROW(simulate_pipeline(PipelineSchedule::gpipe, 3, 4, equal_durations(2, 1, 1)), Error);
}

TEST(PipelineSchedule, tells_of_stages_that_wait_for_each_other_for_ever) {
  // Stage 1 wants the second microbatch first, and stage 0 needs a gradient before it goes on.
  const std::vector<Actions> stuck = {
      {{Act::forward, 0, 0}, {Act::backward, 0, 0}, {Act::forward, 0, 1}},
      {{Act::forward, 1, 1}, {Act::forward, 1, 0}, {Act::backward, 1, 0}}};
  try {
    simulate_pipeline(stuck, equal_durations(2, 1, 1));
    FAIL() << "it must throw";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[pipeline] stage 0 waits for ever before the backward of microbatch 0; give "
                 "another order");
  }
}

TEST(PipelineSchedule, is_written_out_for_small_windows) {
  const auto gpipe = PipelineSchedule::gpipe, pairs = PipelineSchedule::one_f_one_b;
  EXPECT_EQ(letters(pipeline_actions(gpipe, 0, 2, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(letters(pipeline_actions(gpipe, 1, 2, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(letters(pipeline_actions(pairs, 0, 3, 4)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(letters(pipeline_actions(pairs, 1, 3, 4)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(letters(pipeline_actions(pairs, 2, 3, 4)), "F0 B0 F1 B1 F2 B2 F3 B3");
  // Fewer microbatches than stages, one, none.
  EXPECT_EQ(letters(pipeline_actions(pairs, 0, 4, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(letters(pipeline_actions(pairs, 3, 4, 2)), "F0 B0 F1 B1");
  EXPECT_EQ(letters(pipeline_actions(pairs, 0, 4, 1)), "F0 B0");
  EXPECT_TRUE(pipeline_actions(pairs, 0, 4, 0).empty());
  EXPECT_TRUE(pipeline_actions(gpipe, 0, 4, 0).empty());
}

class PipelineTable : public ::testing::TestWithParam<PipelineSchedule> {
 protected:
  // Calls look(stages, microbatches) for all windows of the table.
  template <class F>
  static void over_table(F&& look) {
    for (int64_t stages = 1; stages <= kMostStages; ++stages) {
      for (int64_t count = 0; count <= kMostMicrobatches; ++count) {
        SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(count) +
                     " microbatches");
        look(stages, count);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, PipelineTable,
                         ::testing::Values(PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b),
                         [](const auto& info) {
                           return info.param == PipelineSchedule::gpipe ? "gpipe" : "one_f_one_b";
                         });

TEST_P(PipelineTable, has_each_action_once_and_each_act_by_rising_microbatch) {
  over_table([](int64_t stages, int64_t count) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      const Actions actions = pipeline_actions(GetParam(), stage, stages, count);
      std::map<Act, int64_t> next;
      for (const auto& action : actions) {
        EXPECT_EQ(action.stage, stage);
        EXPECT_EQ(action.microbatch, next[action.act]++);
        EXPECT_LE(next[Act::backward], next[Act::forward]) << "a backward before its forward";
      }
      EXPECT_EQ(next[Act::forward], count);
      EXPECT_EQ(next[Act::backward], count);
    }
  });
}

TEST_P(PipelineTable, ends_with_blocking_sends_and_receives_that_are_posted_one_action_ahead) {
  over_table([](int64_t stages, int64_t count) {
    Rendezvous window(all_stages(GetParam(), stages, count), /*ahead=*/1);
    EXPECT_TRUE(window.ends());
    EXPECT_EQ(window.num_messages(), 2 * (stages - 1) * count);
    EXPECT_TRUE(window.each_message_was_the_awaited_one());
  });
}

TEST(PipelineSchedule, needs_receives_posted_ahead_where_sends_block) {
  // Both stages send at once: an output down, a gradient up.
  Rendezvous late(all_stages(PipelineSchedule::one_f_one_b, 2, 2), /*ahead=*/0);
  EXPECT_FALSE(late.ends());
}

TEST_P(PipelineTable, holds_as_few_microbatches_as_its_kind_can) {
  over_table([](int64_t stages, int64_t count) {
    const PipelineTimes times =
        simulate_pipeline(GetParam(), stages, count, equal_durations(stages, 1, 1));
    ASSERT_EQ(times.most_in_flight.size(), static_cast<size_t>(stages));
    for (int64_t stage = 0; stage < stages; ++stage) {
      const int64_t expected =
          GetParam() == PipelineSchedule::gpipe ? count : std::min(stages - stage, count);
      EXPECT_EQ(times.most_in_flight[static_cast<size_t>(stage)], expected) << "stage " << stage;
    }
  });
}

TEST_P(PipelineTable, wastes_the_known_share_where_all_stages_take_equal_times) {
  over_table([](int64_t stages, int64_t count) {
    for (const double backward : {1.0, 2.0, 3.0}) {
      const PipelineTimes times =
          simulate_pipeline(GetParam(), stages, count, equal_durations(stages, 1, backward));
      const int64_t slots = count == 0 ? 0 : count + stages - 1;
      EXPECT_EQ(times.makespan, static_cast<double>(slots) * (1 + backward));
      const double bubble =
          count == 0 ? 0 : static_cast<double>(stages - 1) / static_cast<double>(slots);
      EXPECT_EQ(times.bubble, bubble);
    }
  });
}

TEST(PipelineTimes, are_those_of_a_window_worked_out_by_hand) {
  // Stage 0: F0 0-1, F1 1-2, B0 10-12, B1 17-19. Stage 1: F0 2-5, B0 5-9, F1 9-12, B1 12-16.
  const PipelineDurations durations{{1, 3}, {2, 4}, /*transfer=*/1};
  const PipelineTimes times = simulate_pipeline(PipelineSchedule::one_f_one_b, 2, 2, durations);
  EXPECT_EQ(times.makespan, 19);
  EXPECT_EQ(times.bubble, (38 - (2 * 3 + 2 * 7)) / 38.0);
  // All forwards first. Stage 1: F0 2-5, F1 5-8, B0 8-12, B1 12-16; stage 0: B0 13-15, B1 17-19.
  EXPECT_EQ(simulate_pipeline(PipelineSchedule::gpipe, 2, 2, durations).makespan, 19);
}

TEST(PipelineTimes, grow_by_each_transfer_that_a_stage_waits_for) {
  PipelineDurations durations = equal_durations(2, 1, 1);
  durations.transfer = 1;
  EXPECT_EQ(simulate_pipeline(PipelineSchedule::gpipe, 2, 4, durations).makespan, 12);
  // An output that is still under way holds up the pair after it.
  EXPECT_EQ(simulate_pipeline(PipelineSchedule::one_f_one_b, 2, 4, durations).makespan, 14);
}

TEST(PipelineTimes, of_one_stage_have_no_bubble) {
  const PipelineTimes times =
      simulate_pipeline(PipelineSchedule::one_f_one_b, 1, 5, {{0.25}, {0.5}, /*transfer=*/7});
  EXPECT_EQ(times.makespan, 5 * 0.75);
  EXPECT_EQ(times.bubble, 0);
}

}  // namespace
}  // namespace tanren
