#include "tanren/guard/leak_detector.h"

#include "tanren/base/log.h"
#include "tanren/blocks/block.h"
#include "tanren/guard/allocation_log.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <deque>
#include <thread>
#include <vector>

namespace tanren {
namespace {

// A loop whose steps compute a loss of a tiny model and hand it to `keep`.
class LeakDetectorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  void TearDown() override { set_log_sink(before_); }

  template <class F>
  void run(LeakDetector& watch, int steps, F&& keep, const std::function<int64_t()>& live = {}) {
    for (int i = 0; i < steps; ++i) {
      at::Tensor loss = run_block("head", [&] {
        return at::matmul(at::ones({4, 8}), weight_).tanh().sum();
      });
      loss.backward();
      {
        const at::NoGradGuard no_grad;
        weight_.sub_(weight_.grad(), 0.01);
      }
      weight_.mutable_grad().zero_();
      keep(loss);
      loss.reset();
      watch.step(live);
    }
  }

  at::Tensor weight_ = at::ones({8, 2}).requires_grad_();
  std::vector<std::string> lines_;
  LogSink before_;
};

TEST_F(LeakDetectorTest, names_a_loss_that_is_summed_up_with_its_graph) {
  LeakDetector watch(20);
  at::Tensor total_loss = at::zeros({});
  run(watch, 60, [&](const at::Tensor& loss) { total_loss += loss; });
  ASSERT_EQ(lines_.size(), 1u) << "one warning, ever";
  EXPECT_EQ(lines_[0], watch.warning());
  EXPECT_NE(lines_[0].find("after 30 steps: each step leaves "), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[0].find("the last AddBackward0 of aten::add_"), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[0].find(".detach()"), std::string::npos) << lines_[0];
}

TEST_F(LeakDetectorTest, names_the_block_of_an_output_that_is_kept) {
  LeakDetector watch(20);
  std::vector<at::Tensor> losses;
  run(watch, 40, [&](const at::Tensor& loss) { losses.push_back(loss); });
  EXPECT_NE(watch.warning().find("SumBackward0 of aten::sum in block head"), std::string::npos)
      << watch.warning();
}

TEST_F(LeakDetectorTest, a_sound_loop_is_left_alone) {
  LeakDetector watch(10);
  double total = 0;
  at::Tensor detached = at::zeros({}), last;
  std::deque<at::Tensor> recent;
  run(watch, 200, [&](const at::Tensor& loss) {
    total += loss.item<double>();
    detached += loss.detach();
    last = loss;  // of one step only
    recent.push_back(loss.detach().clone());
    if (recent.size() > 100) recent.pop_front();
  });
  EXPECT_EQ(watch.warning(), "");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(LeakDetectorTest, names_tensors_without_a_graph_once_memory_has_really_grown) {
  LeakDetector watch(16);
  std::vector<at::Tensor> kept;
  const auto live = [&] { return static_cast<int64_t>(kept.size()) << 16; };
  run(
      watch, 80, [&](const at::Tensor&) { kept.push_back(at::ones({1 << 14})); }, live);
  EXPECT_NE(watch.warning().find("65536 bytes alive, the largest of aten::"), std::string::npos)
      << watch.warning();
}

TEST_F(LeakDetectorTest, tensors_that_stay_without_growth_are_no_matter) {
  LeakDetector watch(16);
  std::vector<at::Tensor> kept;
  run(
      watch, 80, [&](const at::Tensor&) { kept.push_back(at::ones({1 << 14})); },
      [] { return int64_t{5} << 20; });
  EXPECT_EQ(watch.warning(), "");
}

TEST_F(LeakDetectorTest, zero_turns_it_off) {
  LeakDetector watch(0);
  at::Tensor total_loss = at::zeros({});
  run(watch, 200, [&](const at::Tensor& loss) { total_loss += loss; });
  EXPECT_EQ(watch.warning(), "");
}

TEST_F(LeakDetectorTest, a_leak_that_starts_later_is_found_later) {
  LeakDetector watch(16);
  at::Tensor total_loss = at::zeros({});
  int step = 0;
  run(watch, 150, [&](const at::Tensor& loss) {
    if (++step > 60) total_loss += loss;
  });
  EXPECT_NE(watch.warning().find("after 74 steps"), std::string::npos) << watch.warning();
}

TEST(AllocationLog, records_nothing_before_it_starts_and_after_it_stops) {
  const at::Tensor weight = at::ones({3}).requires_grad_();
  const at::Tensor before = weight.tanh();
  AllocationLog log;
  const at::Tensor during = weight.tanh();
  log.next_step();
  at::Tensor in_place = at::ones({3});
  in_place.mul_(2);
  log.stop();
  const at::Tensor after = weight.tanh();
  EXPECT_EQ(log.survivors(0).nodes, 1);
  EXPECT_EQ(log.survivors(0).last_node, "TanhBackward0");
  EXPECT_EQ(log.survivors(1).nodes, 0);
  EXPECT_EQ(log.survivors(1).tensors, 1) << "what is changed in place was made once";
  in_place.reset();
  EXPECT_EQ(log.survivors(1).tensors, 0);
}

TEST(AllocationLog, a_change_in_place_makes_no_storage) {
  at::Tensor old = at::ones({3});
  AllocationLog log;
  old.mul_(2);
  const at::Tensor view = old.view({3, 1});
  log.stop();
  EXPECT_EQ(log.survivors(0).tensors, 0);
}

TEST(AllocationLog, other_threads_are_seen_and_a_second_recorder_waits_its_turn) {
  AllocationLog log;
  at::Tensor made;
  std::thread([&] { made = at::ones({100}); }).join();
  {
    AllocationLog second;
    const at::Tensor more = at::ones({7});
    EXPECT_EQ(second.survivors(0).tensors, 0);
  }
  log.stop();
  EXPECT_EQ(log.survivors(0).tensors, 1);
  EXPECT_EQ(log.survivors(0).bytes, 400);
}

}  // namespace
}  // namespace tanren
