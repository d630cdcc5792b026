#include "tanren/predict/growing_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class Growing : public ::testing::Test {
 protected:
  fs::path out() const { return folder_.path() / "out.csv"; }
  fs::path partial() const { return folder_.path() / "out.csv.partial"; }
  static Progress begun(const std::string& model = "m", const std::string& settings = "s") {
    return {.model = model, .settings = settings, .batch = 4};
  }
  static Progress after(int64_t rows) {
    Progress progress = begun();
    progress.rows = rows;
    progress.source = "rows";
    return progress;
  }
  // Two rows that count, and a third one whose writing was cut off.
  void leave_two_rows_and_a_half() const {
    GrowingFile file(out(), begun(), false);
    file.open();
    file.append("1\n2\n", after(2));
    file.save();
    file.append("cut off\n", after(3));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Growing, refuses_a_file_that_is_there_or_that_another_process_writes) {
  folder_.file("out.csv", "precious");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { GrowingFile(out(), begun(), false); }),
                         "out.csv is there");
  EXPECT_EQ(read_file(out()), "precious");
  GrowingFile mine(out(), begun(), true);
  mine.open();
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { GrowingFile(out(), begun(), true); }),
                         "another process writes");
}

TEST_F(Growing, is_held_before_what_counts_is_read) {
  GrowingFile mine(out(), begun(), false);
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { GrowingFile(out(), begun(), false); }),
                         "another process writes");
  mine.open();
  mine.append("1\n", after(1));
  mine.finish();
  // A late start finds the finished file, and leaves nothing beside it.
  EXPECT_THROW(GrowingFile(out(), begun(), false), ConfigError);
  EXPECT_EQ(read_file(out()), "1\n");
  EXPECT_EQ(folder_.num_entries(), 1u);
}

TEST_F(Growing, without_rows_leaves_no_file_that_was_not_there) {
  { GrowingFile file(out(), begun(), false); }
  EXPECT_EQ(folder_.num_entries(), 0u);
}

TEST_F(Growing, keeps_a_file_that_somebody_else_made_meanwhile) {
  for (const bool turns : {false, true}) {
    {
      GrowingFile file(out(), begun(), false);
      file.open();
      file.append("1\n", after(1));
      folder_.file("out.csv", "precious");
      const GrowingFile::Turn copy = [](const fs::path& from, const fs::path& to) {
        write_file(to, read_file(from));
      };
      TANREN_EXPECT_CONTAINS(
          error_of<InputError>([&] { file.finish(turns ? copy : GrowingFile::Turn()); }),
          "was made by somebody else");
    }
    EXPECT_EQ(read_file(out()), "precious");
    EXPECT_EQ(read_file(partial()), "1\n");
    EXPECT_FALSE(fs::exists(folder_.path() / "out.csv.partial.whole"));
    fs::remove(out());
    GrowingFile file(out(), begun(), false);
    EXPECT_EQ(file.progress().rows, 1);
    file.open();
    file.finish();
    EXPECT_EQ(read_file(out()), "1\n");
    fs::remove(out());
  }
}

TEST_F(Growing, refuses_a_part_of_something_else) {
  leave_two_rows_and_a_half();
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { GrowingFile(out(), begun("n"), false); }),
                         "another model");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { GrowingFile(out(), begun("m", "t"), false); }),
                         "other settings");
  folder_.file("out.csv.partial.json", "{\"rows\": \"many\"}");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { GrowingFile(out(), begun(), false); }),
                         "nothing says what it was made from");
  fs::remove(folder_.path() / "out.csv.partial.json");
  EXPECT_THROW(GrowingFile(out(), begun(), false), ConfigError);
  EXPECT_EQ(read_file(partial()), "1\n2\ncut off\n");
  EXPECT_EQ(GrowingFile(out(), begun(), true).progress().rows, 0);
}

TEST_F(Growing, begins_anew_where_the_state_counts_rows_of_a_part_that_is_gone) {
  for (const bool is_empty : {false, true}) {
    leave_two_rows_and_a_half();
    fs::remove(partial());
    if (is_empty) folder_.file("out.csv.partial", "");
    GrowingFile file(out(), begun(), false);
    EXPECT_EQ(file.progress().rows, 0);
    EXPECT_EQ(file.progress().bytes, 0);
    file.open();
    file.append("a\n", after(1));
    file.finish();
    EXPECT_EQ(read_file(out()), "a\n");
    EXPECT_EQ(folder_.num_entries(), 1u);
    fs::remove(out());
  }
}

TEST_F(Growing, names_both_files_of_a_part_of_something_else) {
  leave_two_rows_and_a_half();
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { GrowingFile(out(), begun("n"), false); }),
      "remove it and " + partial().string() + ".json, or begin again with --force");
}

TEST_F(Growing, never_writes_through_a_link) {
  const fs::path other = folder_.file("other.csv", "precious");
  for (const char* target : {"other.csv", "absent"}) {
    fs::create_symlink(target, partial());
    for (const bool replaced : {false, true}) {
      TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { GrowingFile(out(), begun(), replaced); }),
                             "is no plain file; remove it");
    }
    fs::remove(partial());
  }
  EXPECT_EQ(read_file(other), "precious");
  EXPECT_EQ(folder_.num_entries(), 1u);
}

// The files of a process that was killed between link() and unlink().
TEST_F(Growing, that_is_replaced_keeps_a_whole_file_that_is_the_part_until_the_new_one_is_whole) {
  leave_two_rows_and_a_half();
  fs::create_hard_link(partial(), out());
  const std::string whole = read_file(out());
  {
    GrowingFile file(out(), begun("another model"), true);
    file.open();
    file.append("a\n", after(1));
    file.save();
    EXPECT_EQ(read_file(out()), whole);
    file.finish();
  }
  EXPECT_EQ(read_file(out()), "a\n");
  EXPECT_EQ(folder_.num_entries(), 1u);
}

TEST_F(Growing, keeps_what_rows_were_computed_in) {
  {
    GrowingFile file(out(), begun(), false);
    EXPECT_EQ(file.progress().computed, "");
    file.open();
    Progress progress = after(1);
    progress.computed = "cpu,bf16";
    file.append("1\n", progress);
    file.save();
  }
  EXPECT_EQ(GrowingFile(out(), begun(), false).progress().computed, "cpu,bf16");
  // The state of an older version does not have it.
  std::string state = read_file(folder_.path() / "out.csv.partial.json");
  const std::string said = ",\"computed\":\"cpu,bf16\"";
  state.erase(state.find(said), said.size());
  folder_.file("out.csv.partial.json", state);
  const GrowingFile older(out(), begun(), false);
  EXPECT_EQ(older.progress().rows, 1);
  EXPECT_EQ(older.progress().computed, "");
}

TEST_F(Growing, keeps_how_many_rows_its_samples_have) {
  {
    GrowingFile file(out(), begun(), false);
    file.open();
    Progress progress = after(1);
    progress.written = 7;
    file.append("1\n", progress);
    file.save();
  }
  EXPECT_EQ(GrowingFile(out(), begun(), false).progress().written, 7);
  // The state of an older version does not have it.
  std::string state = read_file(folder_.path() / "out.csv.partial.json");
  const std::string said = ",\"written\":7";
  state.erase(state.find(said), said.size());
  folder_.file("out.csv.partial.json", state);
  const GrowingFile older(out(), begun(), false);
  EXPECT_EQ(older.progress().rows, 1);
  EXPECT_EQ(older.progress().written, 0);
}

TEST_F(Growing, goes_on_behind_the_rows_that_count) {
  leave_two_rows_and_a_half();
  EXPECT_FALSE(fs::exists(out()));
  GrowingFile file(out(), begun(), false);
  EXPECT_EQ(file.progress().rows, 2);
  EXPECT_EQ(file.progress().source, "rows");
  EXPECT_EQ(file.progress().batch, 4);
  file.open();
  file.append("3\n", after(3));
  file.finish();
  EXPECT_EQ(read_file(out()), "1\n2\n3\n");
  EXPECT_EQ(folder_.num_entries(), 1u);
}

TEST_F(Growing, leaves_nothing_if_nothing_was_done) {
  {
    GrowingFile file(out(), begun(), false);
    file.open();
    file.leave();
  }
  EXPECT_EQ(folder_.num_entries(), 0u);
  folder_.file("out.csv.partial", "");  // killed before it began
  EXPECT_EQ(GrowingFile(out(), begun(), false).progress().rows, 0);
}

TEST_F(Growing, on_a_full_disk_keeps_what_is_whole) {
  {
    GrowingFile file(out(), begun(), false);
    file.open();
    file.append(std::string(99, 'a') + "\n", after(1));
    const testing::FullDiskScope full(1000);
    const std::string error =
        error_of<InputError>([&] { file.append(std::string(2000, 'b') + "\n", after(2)); });
    TANREN_EXPECT_CONTAINS(error, "cannot write");
    TANREN_EXPECT_CONTAINS(error, "it goes on after row 1");
  }
  GrowingFile file(out(), begun(), false);
  EXPECT_EQ(file.progress().rows, 1);
  EXPECT_EQ(file.progress().bytes, 100);
}

}  // namespace
}  // namespace tanren
