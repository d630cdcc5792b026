#include "tanren/metrics/jsonl_sink.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/metrics/json_line.h"
#include "tanren/metrics/queued_sink.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace tanren {
namespace {

// A folder of its own for each test, removed afterwards.
class JsonlSinkFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tanren_log_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    file_ = folder_ / "log.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string content() const {
    std::ifstream in(file_, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void put(const std::string& text) const { std::ofstream(file_, std::ios::binary) << text; }

  std::filesystem::path folder_;
  std::filesystem::path file_;
};
using JsonlSink = JsonlSinkFolder;
using TruncateLog = JsonlSinkFolder;

StepReport step_report(int64_t attempt) {
  StepReport report;
  report.attempt = attempt;
  report.step = attempt;
  report.objectives.resize(1);
  report.objectives[0].loss = 1.0 / static_cast<double>(attempt);
  return report;
}

std::string step_lines(int64_t first, int64_t last) {
  std::string text;
  for (int64_t i = first; i <= last; ++i) text += json_line(step_report(i)) + "\n";
  return text;
}

TEST_F(JsonlSink, names_a_file_that_cannot_be_opened) {
  try {
    make_jsonl_sink(folder_ / "absent" / "log.jsonl");
    FAIL() << "no error";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("absent/log.jsonl"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  }
}

// Collects the lines of the program's log while the scope lives.
class LogScope {
 public:
  LogScope() : before_(set_log_sink([this](std::string_view line) { add(line); })) {}
  ~LogScope() { set_log_sink(before_); }
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  void add(std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  }
  std::mutex mutex_;
  std::vector<std::string> lines_;
  LogSink before_;
};

TEST_F(JsonlSink, refuses_a_checkpoint_on_a_full_device_at_every_flush) {
  LogScope log;
  const auto sink = make_jsonl_sink("/dev/full");
  sink->step(step_report(1));
  EXPECT_THROW(sink->flush(), RunError);
  EXPECT_NO_THROW(sink->step(step_report(2)));  // steps continue; the line waits
  EXPECT_THROW(sink->flush(), RunError);
  EXPECT_EQ(log.lines().size(), 1u);
}

TEST_F(JsonlSink, throws_from_step_once_more_waits_than_it_may_keep) {
  LogScope log;
  const auto sink = make_queued_sink(std::make_unique<AppendFile>("/dev/full"), make_json_format(),
                                     {.max_waiting = 1000});
  EXPECT_THROW(
      {
        for (int64_t i = 1; i <= 100000; ++i) sink->step(step_report(i));
      },
      RunError);
}

TEST_F(JsonlSink, on_a_full_disk_keeps_whole_lines_and_the_rest_in_memory_until_there_is_room) {
  LogScope log;
  const std::string before = step_lines(1, 3);
  const size_t line = json_line(step_report(4)).size() + 1;
  const auto sink = make_jsonl_sink(file_);
  for (int64_t i = 1; i <= 3; ++i) sink->step(step_report(i));
  sink->flush();
  {
    const testing::FullDiskScope full(before.size() + line + line / 2);  // a line and a half
    sink->step(step_report(4));
    sink->step(step_report(5));
    EXPECT_THROW(sink->flush(), RunError);
    EXPECT_EQ(content(), step_lines(1, 4));
    for (int64_t i = 6; i <= 900; ++i) sink->step(step_report(i));
  }
  sink->flush();
  EXPECT_EQ(content(), step_lines(1, 900));
  const auto lines = log.lines();
  ASSERT_EQ(lines.size(), 2u);
  TANREN_EXPECT_CONTAINS(lines[0], "the run goes on");
  TANREN_EXPECT_CONTAINS(lines[1], "nothing is missing");
}

TEST_F(JsonlSink, has_everything_in_the_file_when_flush_returns) {
  const auto sink = make_jsonl_sink(file_);
  sink->step(step_report(1));
  sink->evaluation({.step = 1, .samples = 4, .values = {{"accuracy", 0.5}}});
  sink->step(step_report(2));
  sink->flush();
  const auto evaluation =
      json_line(EvaluationReport{.step = 1, .samples = 4, .values = {{"accuracy", 0.5}}});
  EXPECT_EQ(content(), step_lines(1, 1) + evaluation + "\n" + step_lines(2, 2));
}

TEST_F(JsonlSink, keeps_every_line_in_order_when_told_faster_than_it_writes) {
  {
    const auto sink = make_jsonl_sink(file_);
    for (int64_t i = 1; i <= 5000; ++i) sink->step(step_report(i));
  }  // no flush: the destructor writes what is left
  EXPECT_EQ(content(), step_lines(1, 5000));
}

TEST_F(JsonlSink, does_not_carry_a_slot_s_old_text_into_a_later_report) {
  const auto sink = make_jsonl_sink(file_);
  std::string expected;
  for (int64_t i = 1; i <= 600; ++i) {  // more than twice around the ring
    auto report = step_report(i);
    if (i < 300) report.culprit = "a long text that needs memory of its own, microbatch 3";
    if (i < 300) report.objectives.push_back(report.objectives[0]);
    report.several = i < 300;
    expected += json_line(report) + "\n";
    sink->step(report);
  }
  sink->flush();
  EXPECT_EQ(content(), expected);
}

TEST_F(JsonlSink, appends_after_a_cut_and_first_removes_a_torn_line) {
  put(step_lines(1, 2) + R"({"attempt":3,"ste)");
  const auto sink = make_jsonl_sink(file_);
  sink->step(step_report(3));
  sink->flush();
  EXPECT_EQ(content(), step_lines(1, 3));
}

TEST_F(TruncateLog, does_nothing_without_a_file) {
  EXPECT_NO_THROW(truncate_log(file_, 5));
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(TruncateLog, removes_the_lines_of_later_attempts_and_the_evaluations_after_them) {
  const std::string evaluation = json_line(EvaluationReport{}) + "\n";
  put(step_lines(1, 2) + evaluation + step_lines(3, 4) + evaluation);
  truncate_log(file_, 2);
  EXPECT_EQ(content(), step_lines(1, 2) + evaluation);
}

TEST_F(TruncateLog, an_evaluation_that_is_made_again_goes_and_those_before_stay) {
  const std::string evaluation = json_line(EvaluationReport{}) + "\n";
  put(step_lines(1, 2) + evaluation + step_lines(3, 4) + evaluation);
  truncate_log(file_, 4, /*keeps_evaluation=*/false);
  EXPECT_EQ(content(), step_lines(1, 2) + evaluation + step_lines(3, 4));
}

TEST_F(TruncateLog, the_last_loss_is_that_of_the_last_attempt) {
  EXPECT_FALSE(last_loss(file_, 3));
  auto last = step_report(3);
  last.objectives.front().loss = 0.75;
  put(step_lines(1, 2) + json_line(last) + "\n" + json_line(EvaluationReport{}) + "\n");
  EXPECT_EQ(last_loss(file_, 3), 0.75);
  EXPECT_FALSE(last_loss(file_, 4)) << "the log was off then";
  put(content() + "{\"attempt\":4,\"lo");
  EXPECT_EQ(last_loss(file_, 3), 0.75) << "the last line is torn";
}

TEST_F(TruncateLog, the_last_loss_is_found_before_many_evaluations) {
  const std::string evaluation = json_line(EvaluationReport{}) + "\n";
  std::string evaluations;
  while (evaluations.size() < 300'000) evaluations += evaluation;
  auto last = step_report(3);
  last.objectives.front().loss = 0.75;
  put(step_lines(1, 2) + json_line(last) + "\n" + evaluations);
  EXPECT_EQ(last_loss(file_, 3), 0.75);
  put(evaluations);
  EXPECT_FALSE(last_loss(file_, 3));
}

TEST_F(TruncateLog, a_remark_comes_with_the_attempt_that_it_stands_before_and_goes_with_it) {
  const std::string remark = R"({"from_attempt":3,"changed":{}})";
  EXPECT_FALSE(has_line_ending(file_, "{}}"));
  put(step_lines(1, 2));
  const std::string evaluated = json_line(EvaluationReport{}) + "\n";
  {
    const auto sink = make_jsonl_sink(file_, {remark});
    sink->evaluation({});  // an owed evaluation: it stays when the remark is cut
    sink->flush();
    EXPECT_EQ(content(), step_lines(1, 2) + evaluated);
    for (const int64_t attempt : {3, 4}) sink->step(step_report(attempt));
  }
  EXPECT_EQ(content(), step_lines(1, 2) + evaluated + remark + "\n" + step_lines(3, 4));
  EXPECT_TRUE(has_line_ending(file_, ",\"changed\":{}}"));
  truncate_log(file_, 3);
  EXPECT_EQ(content(), step_lines(1, 2) + evaluated + remark + "\n" + step_lines(3, 3));
  truncate_log(file_, 2);
  EXPECT_EQ(content(), step_lines(1, 2) + evaluated);
}

TEST_F(TruncateLog, removes_a_torn_last_line_even_of_an_earlier_attempt) {
  put(step_lines(1, 3) + R"({"attempt":4,"step":4)");
  truncate_log(file_, 9);
  EXPECT_EQ(content(), step_lines(1, 3));
}

TEST_F(TruncateLog, compares_attempts_as_numbers_and_empties_the_log_for_attempt_0) {
  put(step_lines(8, 12));
  truncate_log(file_, 10);
  EXPECT_EQ(content(), step_lines(8, 10));
  truncate_log(file_, 0);
  EXPECT_EQ(content(), "");
}

// Root may write everything. While this object lives, this thread opens files as the user nobody,
// who becomes the owner of `file` and its folder.
class LikeAnyUser {
 public:
  explicit LikeAnyUser(const std::filesystem::path& file) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() != 0) return;
    for (const auto& path : {file, file.parent_path()}) {
      EXPECT_EQ(::chown(path.c_str(), kNobody, static_cast<gid_t>(-1)), 0) << path;
    }
    ::setfsuid(kNobody);
  }
  ~LikeAnyUser() { ::setfsuid(::geteuid()); }
  LikeAnyUser(const LikeAnyUser&) = delete;
  LikeAnyUser& operator=(const LikeAnyUser&) = delete;
};

TEST_F(TruncateLog, refuses_a_file_it_may_not_write) {
  put(step_lines(1, 2));
  std::filesystem::permissions(file_, std::filesystem::perms::owner_read);
  const LikeAnyUser user(file_);
  if (std::ofstream(file_, std::ios::app)) GTEST_SKIP() << "this user may write everything";
  EXPECT_THROW(truncate_log(file_, 1), RunError);
  EXPECT_EQ(content(), step_lines(1, 2));
}

}  // namespace
}  // namespace tanren
