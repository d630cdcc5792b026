#include "tanren/sweep/journal.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using Lines = std::vector<std::string>;

class JournalFile : public ::testing::Test {
 protected:
  // A journal of three lines.
  void SetUp() override {
    Journal journal(file_);
    for (const char* line : {"{\"a\":1}", "{\"b\":[2,3]}", "{\"c\":\"x\"}"}) {
      journal.append(line, false);
    }
    text_ = read_file(file_);
  }
  std::string error_for(const std::string& text) {
    write_file(file_, text);
    return error_of<InputError>([&] { Journal journal(file_); });
  }

  testing::TemporaryFolder folder_;
  const fs::path file_ = folder_.path() / "journal.jsonl";
  const Lines lines_{"{\"a\":1}", "{\"b\":[2,3]}", "{\"c\":\"x\"}"};
  std::string text_;
};

TEST_F(JournalFile, gives_back_its_lines_and_goes_on) {
  {
    Journal journal(file_);
    EXPECT_EQ(journal.take_lines(), lines_);
    journal.append("{\"d\":4}", true);
  }
  const std::string text = read_file(file_);
  EXPECT_EQ(text.substr(0, text_.size()), text_);
  EXPECT_EQ(Journal(file_).take_lines().size(), 4u);
  EXPECT_EQ(read_journal(file_).back(), "{\"d\":4}");
}

TEST_F(JournalFile, cuts_a_last_line_without_its_end_at_any_byte) {
  const size_t begin = text_.find("{\"c\"");
  for (size_t size = begin; size < text_.size(); ++size) {
    write_file(file_, text_.substr(0, size));
    Journal journal(file_);
    EXPECT_EQ(journal.take_lines(), (Lines{lines_[0], lines_[1]}));
    EXPECT_EQ(fs::file_size(file_), begin);
    journal.append(lines_[2], false);
    EXPECT_EQ(read_file(file_), text_);
  }
}

TEST_F(JournalFile, refuses_lines_that_were_changed_dropped_moved_or_added) {
  const size_t second = text_.find("{\"b\""), third = text_.find("{\"c\"");
  const std::string a = text_.substr(0, second), b = text_.substr(second, third - second),
                    c = text_.substr(third);
  std::string changed = text_;
  changed[changed.find("[2,") + 1] = '7';
  const auto expect_line = [&](const std::string& text, const std::string& line) {
    TANREN_EXPECT_CONTAINS(
        error_for(text), "[sweep] " + file_.string() + ":" + line + " is not as it was written; ");
  };
  expect_line(changed, "2");
  expect_line(a + c, "2");
  expect_line(b + a + c, "1");
  expect_line(a + b + b + c, "3");
  expect_line(text_ + "\n", "4");
  expect_line("{\"a\":1}\n", "1");
}

TEST_F(JournalFile, has_one_writer) {
  Journal journal(file_);
  EXPECT_EQ(
      error_of<InputError>([&] { Journal other(file_); }),
      "[sweep] another process writes " + file_.string() + "; wait for it, or take another folder");
  EXPECT_EQ(read_journal(file_), lines_);  // reading needs no lock
  journal.leave();
  EXPECT_EQ(Journal(file_).take_lines(), lines_);
}

TEST_F(JournalFile, is_as_before_when_the_disk_is_full_and_goes_on_later) {
  Journal journal(file_);
  {
    const testing::FullDiskScope full(text_.size() + 5);
    TANREN_EXPECT_CONTAINS(error_of<RunError>([&] { journal.append("{\"d\":4}", true); }),
                           "[sweep] cannot write " + file_.string());
  }
  EXPECT_EQ(read_file(file_), text_);
  journal.append("{\"d\":4}", true);
  EXPECT_EQ(read_journal(file_).size(), 4u);
}

TEST(Journal, a_file_that_cannot_be_opened_is_told) {
  TANREN_EXPECT_CONTAINS(error_of<InputError>([] { Journal journal("/absent/journal.jsonl"); }),
                         "[sweep] cannot open /absent/journal.jsonl (No such file");
}

// So that a program in another language can write lines: FNV-1a's published values.
TEST(Journal, sums_are_fnv_1a) {
  EXPECT_EQ(next_sum(0xcbf29ce484222325, "a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(next_sum(0xcbf29ce484222325, "foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace tanren
