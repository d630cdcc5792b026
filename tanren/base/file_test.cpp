#include "tanren/base/file.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

namespace tanren {
namespace {

using testing::TemporaryFolder;

TEST(File, reading_names_the_path_and_the_reason) {
  const TemporaryFolder folder;
  const auto missing =
      testing::error_of<InputError>([&] { read_file(folder.path() / "absent.toml"); });
  TANREN_EXPECT_CONTAINS(missing, "absent.toml");
  TANREN_EXPECT_CONTAINS(missing, "No such file");
  TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] { read_file(folder.path()); }),
                         "is a folder");
}

TEST(File, a_full_disk_leaves_the_old_file_and_no_temporary_one) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "weights";
  write_file(path, "old");
  std::string error;
  {
    const testing::FullDiskScope full(4096);
    error = testing::error_of<RunError>([&] { write_file(path, std::string(100000, 'x')); });
  }
  TANREN_EXPECT_CONTAINS(error, "weights");
  TANREN_EXPECT_CONTAINS(error, "free space");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.num_entries(), 1);
}

TEST(File, writing_below_something_that_is_no_folder_fails_in_one_line) {
  const TemporaryFolder folder;
  const auto blocked = folder.file("blocked", "a file");
  const auto error = testing::error_of<RunError>([&] { write_file(blocked + "/inside", "bytes"); });
  TANREN_EXPECT_CONTAINS(error, "blocked/inside");
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(File, what_was_written_is_read_back_byte_for_byte) {
  const TemporaryFolder folder;
  std::string bytes(70000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  write_file(folder.path() / "whole", bytes);
  EXPECT_EQ(read_file(folder.path() / "whole"), bytes);
  const std::string_view view = bytes;
  write_file(folder.path() / "pieces", {view.substr(0, 1), view.substr(1, 0), view.substr(1)});
  EXPECT_EQ(read_file(folder.path() / "pieces"), bytes);
  write_file(folder.path() / "empty", "");
  EXPECT_EQ(read_file(folder.path() / "empty"), "");
}

TEST(File, reads_what_does_not_say_its_size) {
  TANREN_EXPECT_CONTAINS(read_file("/proc/self/status"), "Pid:");
}

}  // namespace
}  // namespace tanren
