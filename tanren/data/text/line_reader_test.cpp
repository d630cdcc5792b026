#include "tanren/data/text/line_reader.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

namespace tanren {
namespace {

using testing::error_of;

std::vector<std::string> lines_of(const std::string& file) {
  LineReader reader(file, "predict", "utf-8");
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  EXPECT_EQ(reader.number(), std::ssize(lines));
  return lines;
}

TEST(LineReader, refuses_what_is_no_text_wherever_it_lies) {
  const testing::TemporaryFolder folder;
  const auto error = [&](const std::string& bytes) {
    return error_of<DataError>([&] { lines_of(folder.file("x.txt", bytes)); });
  };
  TANREN_EXPECT_CONTAINS(error(std::string("ab\nc\0d", 6)), "x.txt:2: byte 2 is 0");
  const std::string late = std::string(200000, 'a') + "\n" + std::string("b\0", 2);
  TANREN_EXPECT_CONTAINS(error(late), "x.txt:2: byte 2 is 0");
  std::string wide = "\xff\xfe";
  for (const char c : std::string("text")) wide += {c, '\0'};
  TANREN_EXPECT_CONTAINS(error(wide), "is UTF-16");
  EXPECT_THROW(lines_of(folder.path() / "absent"), InputError);
}

TEST(LineReader, gives_lines_with_any_end_and_of_any_length) {
  const testing::TemporaryFolder folder;
  const std::string longest(300000, 'x');
  EXPECT_EQ(lines_of(folder.file("a", "\xEF\xBB\xBFone\r\ntwo\n\n" + longest + "\nlast")),
            (std::vector<std::string>{"one", "two", "", longest, "last"}));
  EXPECT_EQ(lines_of(folder.file("b", "one\n")), (std::vector<std::string>{"one"}));
  EXPECT_TRUE(lines_of(folder.file("c", "")).empty());
  // Lines that end where the buffer does.
  const std::string half((size_t{1} << 15) - 1, 'y');
  EXPECT_EQ(lines_of(folder.file("d", half + "\n" + half + "\nz")),
            (std::vector<std::string>{half, half, "z"}));
}

TEST(LineReader, waits_for_a_pipe_until_a_stop) {
  const testing::TemporaryFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::atomic<bool> stop = true;
  std::string line;
  LineReader nobody(pipe, "predict", "utf-8", &stop);  // opening does not wait for a writer
  EXPECT_THROW(nobody.next(line), StoppedReading);
  // The reader gets the bytes of several writes, until the writer closes the pipe.
  LineReader reader(pipe, "predict", "utf-8");
  std::jthread writer([&] {
    std::ofstream to(pipe);
    for (int i = 0; i < 3; ++i) {
      to << std::string(100000, 'x') << "\nb" << std::flush;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  int64_t bytes = 0;
  while (reader.next(line)) bytes += std::ssize(line);
  EXPECT_EQ(bytes, 300003);
  EXPECT_EQ(reader.number(), 4);
}

// Issue 26: plain files below /dev were treated as pipes.
TEST(LineReader, waits_for_pipes_and_terminals_alone) {
  const testing::TemporaryFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& source : {pipe, std::string("-"), std::string("/dev/null")}) {
    EXPECT_TRUE(is_pipe(source)) << source;
  }
  for (const std::string& source :
       {folder.file("x.csv", ""), std::string("/dev/shm"), std::string("/dev/shm/none.csv")}) {
    EXPECT_FALSE(is_pipe(source)) << source;
  }
}

TEST(LineReader, says_whether_a_line_is_there) {
  const testing::TemporaryFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string line;
  LineReader reader(pipe, "predict", "utf-8");
  EXPECT_FALSE(reader.is_ready()) << "nobody writes";
  {
    std::ofstream to(pipe);
    to << "a\nb" << std::flush;
    EXPECT_TRUE(reader.is_ready());
    ASSERT_TRUE(reader.next(line));
    EXPECT_EQ(line, "a");
    EXPECT_FALSE(reader.is_ready()) << "half a line";
    to << "c\n" << std::flush;
    EXPECT_TRUE(reader.is_ready());
    ASSERT_TRUE(reader.next(line));
    EXPECT_EQ(line, "bc") << "nothing was lost";
    to << "d" << std::flush;
  }
  EXPECT_TRUE(reader.is_ready()) << "the end";
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(line, "d");
  EXPECT_TRUE(reader.is_ready());
  EXPECT_FALSE(reader.next(line));
  LineReader file(folder.file("x.txt", "a\n"), "predict", "utf-8");
  EXPECT_TRUE(file.is_ready());
}

TEST(LineReader, says_which_byte_is_no_utf_8_or_reads_latin_1) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.file("x.txt", "caf\xe9\n");
  LineReader utf8(file, "predict", "utf-8"), latin(file, "predict", "latin-1");
  std::string line, problem;
  ASSERT_TRUE(utf8.next(line));
  utf8.text(line, problem);
  TANREN_EXPECT_CONTAINS(problem, "byte 4 (0xE9) is no UTF-8");
  problem.clear();
  ASSERT_TRUE(latin.next(line));
  EXPECT_EQ(latin.text(line, problem), "caf\xc3\xa9");
  EXPECT_EQ(problem, "");
}

TEST(LineReader, makes_text_of_a_record_or_says_line_and_byte) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.file("x.csv", "a\n");
  const LineReader utf8(file, "data.train", "utf-8"), latin(file, "data.train", "latin-1");
  std::string record = "a\n\xc3\xa9t\xe9";
  TANREN_EXPECT_CONTAINS(
      error_of<DataError>([&] { utf8.make_text(record, 7); }),
      "[data.train] " + file + ":8: byte 4 (0xE9) is no UTF-8; convert the file");
  latin.make_text(record, 7);
  EXPECT_EQ(record, "a\n\xc3\x83\xc2\xa9t\xc3\xa9");
  std::string sound = "\xc3\xa9";
  utf8.make_text(sound, 1);
  EXPECT_EQ(sound, "\xc3\xa9");
}

TEST(LineReader, refuses_a_line_that_is_longer_than_is_asked_for) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.file("x.txt", "a\n" + std::string(300000, 'x'));
  LineReader reader(file, "predict", "utf-8", nullptr, 200000);
  std::string line;
  ASSERT_TRUE(reader.next(line));
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { reader.next(line); }),
                         "x.txt:2: the line is longer than");
}

}  // namespace
}  // namespace tanren
