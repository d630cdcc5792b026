#include "tanren/monitor/log_tail.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

std::string attempt_line(int64_t attempt, int64_t step, const std::string& loss,
                         const std::string& verdict = "apply") {
  return "{\"attempt\":" + std::to_string(attempt) + ",\"step\":" + std::to_string(step) +
         ",\"epoch\":1,\"samples\":32,\"microsteps\":1,\"loss\":" + loss +
         ",\"terms\":{\"x\":1},\"grad_norm\":2.5,\"learning_rate\":0.001,\"loss_scale\":1," +
         "\"verdict\":\"" + verdict + "\",\"cause\":\"none\",\"timing\":{\"seconds\":0.5," +
         "\"wait_seconds\":0.125,\"samples_per_second\":64,\"memory_bytes\":4096}}\n";
}

constexpr const char* kEvaluation =
    "{\"evaluation\":{\"loss\":0.5,\"accuracy\":0.75,\"auroc\":null},\"step\":2,\"samples\":9,"
    "\"timing\":{\"seconds\":1}}\n";

class LogTailOf : public ::testing::Test {
 protected:
  std::optional<LogTail> of(const std::string& text) {
    return read_log_tail(folder_.file("log.jsonl", text));
  }
  testing::TemporaryFolder folder_;
};

TEST_F(LogTailOf, no_file_an_empty_one_and_a_folder_are_nothing) {
  EXPECT_FALSE(read_log_tail(folder_.path() / "none.jsonl"));
  EXPECT_FALSE(read_log_tail(folder_.path()));
  EXPECT_FALSE(of(""));
  EXPECT_FALSE(of("\n\n"));
  EXPECT_FALSE(of(kEvaluation));
}

TEST_F(LogTailOf, a_torn_last_line_is_passed_over_at_every_length) {
  const std::string first = attempt_line(1, 1, "3.5"), second = attempt_line(2, 2, "2.5");
  for (size_t cut = 0; cut < second.size(); ++cut) {
    const auto tail = of(first + second.substr(0, cut));
    ASSERT_TRUE(tail) << cut;
    EXPECT_EQ(tail->step, 1) << cut;
  }
  EXPECT_EQ(of(first + second)->step, 2);
}

TEST_F(LogTailOf, lines_that_are_no_reports_are_passed_over) {
  const auto tail = of(attempt_line(7, 6, "1.5") + "\n[1]\n{\"attempt\n\xff\xfe\nnull\n{}\n");
  ASSERT_TRUE(tail);
  EXPECT_EQ(tail->attempt, 7);
  EXPECT_EQ(tail->step, 6);
}

TEST_F(LogTailOf, values_of_another_kind_are_absent) {
  const auto tail = of("{\"attempt\":\"x\",\"step\":1.5,\"loss\":null,\"timing\":7}\n");
  ASSERT_TRUE(tail);
  EXPECT_EQ(tail->attempt, 0);
  EXPECT_FALSE(tail->loss);
  EXPECT_EQ(tail->samples_per_second, 0);
}

TEST_F(LogTailOf, a_loss_that_is_not_finite_is_absent_and_its_cause_told) {
  const auto tail = of(attempt_line(1, 1, "3.5") + attempt_line(2, 1, "null", "skip"));
  EXPECT_FALSE(tail->loss);
  EXPECT_EQ(tail->verdict, "skip");
  EXPECT_EQ(tail->cause, "none");
}

TEST_F(LogTailOf, speed_counts_attempts_and_the_time_of_a_step_applied_ones) {
  const auto tail = of(attempt_line(1, 1, "4") + attempt_line(2, 1, "null", "skip") + kEvaluation +
                       attempt_line(3, 2, "3") + attempt_line(4, 3, "2"));
  EXPECT_EQ(tail->attempt, 4);
  EXPECT_EQ(tail->step, 3);
  EXPECT_EQ(tail->loss, 2);
  EXPECT_EQ(tail->learning_rate, 0.001);
  EXPECT_DOUBLE_EQ(tail->samples_per_second, 64);
  EXPECT_EQ(tail->tokens_per_second, 0);
  EXPECT_DOUBLE_EQ(tail->seconds_per_step, 2.0 / 3);
  EXPECT_DOUBLE_EQ(tail->wait_share, 0.25);
  EXPECT_EQ(tail->memory_bytes, 4096);
  EXPECT_EQ(tail->evaluation_step, 2);
  ASSERT_EQ(tail->evaluation.size(), 2u);  // null is no value
}

TEST_F(LogTailOf, the_evaluations_of_a_metric_are_all_there_in_their_order) {
  const std::string log = folder_.file(
      "log.jsonl", attempt_line(1, 1, "1") + kEvaluation + attempt_line(2, 2, "1") +
                       "{\"evaluation\":{\"loss\":0.25},\"step\":4}\n{\"evaluation\":{\"lo");
  using Values = std::vector<std::pair<int64_t, double>>;
  EXPECT_EQ(evaluations_of(log, "loss"), (Values{{2, 0.5}, {4, 0.25}}));
  const auto undefined = evaluations_of(log, "auroc");
  ASSERT_EQ(undefined.size(), 1u);
  EXPECT_TRUE(std::isnan(undefined[0].second));
  EXPECT_TRUE(evaluations_of(folder_.path() / "none", "loss").empty());
}

TEST_F(LogTailOf, of_a_long_log_only_the_last_hundred_attempts_count) {
  std::string text;
  for (int i = 1; i <= 5000; ++i) {
    std::string line = attempt_line(i, i, "1");
    if (i <= 4900) line.replace(line.find("\"seconds\":0.5"), 13, "\"seconds\":900");
    text += line;
  }
  const auto tail = of(text);
  EXPECT_EQ(tail->step, 5000);
  EXPECT_DOUBLE_EQ(tail->seconds_per_step, 0.5);
}

TEST_F(LogTailOf, an_attempt_is_found_behind_an_evaluation_longer_than_the_first_window) {
  std::string evaluation = "{\"evaluation\":{\"loss\":1},\"confusion_matrix\":[0";
  for (int i = 0; i < 300000; ++i) evaluation += ",0";
  const auto tail = of(attempt_line(9, 9, "1") + evaluation + "],\"step\":9}\n");
  ASSERT_TRUE(tail);
  EXPECT_EQ(tail->step, 9);
  EXPECT_EQ(tail->evaluation_step, 9);
}

}  // namespace
}  // namespace tanren
