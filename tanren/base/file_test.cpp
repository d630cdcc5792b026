#include "tanren/base/file.h"

#include "tanren/base/error.h"
#include "tanren/base/temporary.h"
#include "tanren/base/testing.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

namespace tanren {
namespace {

namespace fs = std::filesystem;

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

// Issue 21: the name of the temporary file was the path and the process.
TEST(File, a_link_that_lies_in_wait_for_the_temporary_file_is_not_followed) {
  const TemporaryFolder folder;
  const auto victim = folder.file("victim", "precious");
  const auto path = folder.path() / "weights";
  fs::create_symlink(victim, path.string() + ".tmp-" + std::to_string(::getpid()));
  write_file(path, "new");
  EXPECT_EQ(read_file(victim), "precious");
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(temporary_name(path));
  EXPECT_EQ(names.size(), 100U) << "they can be foreseen";
}

TEST(File, what_stands_under_a_temporary_name_is_not_opened) {
  const TemporaryFolder folder;
  const auto victim = folder.file("victim", "precious");
  int tries = 0;
  const auto made = make_temporary(folder.path() / "weights", [&](const char* name) {
    if (++tries < 3) fs::create_symlink(victim, name);
    return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  });
  EXPECT_EQ(tries, 3);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(made)));
  EXPECT_EQ(read_file(victim), "precious");
}

TEST(File, has_the_rights_that_umask_leaves) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "shared";
  for (const mode_t mask : {mode_t{0002}, mode_t{0077}}) {
    const mode_t before = ::umask(mask);
    write_file(path, "text");
    ::umask(before);
    EXPECT_EQ(static_cast<mode_t>(fs::status(path).permissions()), 0666 & ~mask);
  }
}

TEST(File, two_threads_that_write_it_leave_what_one_of_them_wrote) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "both";
  const std::string first(200'000, 'a'), second(200'000, 'b');
  for (int i = 0; i < 20; ++i) {
    std::thread other([&] { write_file(path, first); });
    write_file(path, second);
    other.join();
    const std::string text = read_file(path);
    ASSERT_TRUE(text == first || text == second);
  }
  EXPECT_EQ(folder.num_entries(), 1U);
}

TEST(File, leftovers_go_once_their_writer_is_gone_and_nothing_else_does) {
  const TemporaryFolder folder;
  const auto ours = {".tmp-config.toml-a1b2c3d4", "config.toml.tmp-4242"};
  const auto others = {".tmp-",   ".tmp-x-A1b2c3d4", ".tmp-x-a1b2c3d", "config.toml.tmp-42x",
                       ".tmp-42", "tmp-x-a1b2c3d4",  "config.toml"};
  for (const auto* name : ours) folder.file(name, "");
  for (const auto* name : others) folder.file(name, "");
  fs::create_directory(folder.path() / ".tmp-step-5-a1b2c3d4");
  fs::create_symlink("config.toml", folder.path() / ".tmp-link-a1b2c3d4");
  fs::path written;
  const int writer = open_temporary(folder.path() / "alive", written);
  ASSERT_GE(writer, 0);
  remove_leftovers(folder.path());
  for (const auto* name : ours) EXPECT_FALSE(fs::exists(folder.path() / name)) << name;
  for (const auto* name : others) EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  EXPECT_TRUE(fs::exists(written));
  EXPECT_EQ(folder.num_entries(), others.size() + 3);
  ::close(writer);
  remove_leftovers(folder.path());
  EXPECT_FALSE(fs::exists(written));
}

// remove_leftovers may lock a new file before its writer does.
TEST(File, a_new_temporary_file_is_not_taken_for_a_leftover) {
  const TemporaryFolder folder;
  std::atomic<int64_t> passes = 0;
  std::jthread remover([&](const std::stop_token& stop) {
    for (; !stop.stop_requested(); ++passes) remove_leftovers(folder.path());
  });
  for (int i = 0; i < 100; ++i) {
    fs::path written;
    const int writer = open_temporary(folder.path() / "new", written);
    ASSERT_GE(writer, 0);
    for (const int64_t before = passes; passes < before + 2;) std::this_thread::yield();
    ASSERT_TRUE(fs::exists(written)) << i;
    fs::remove(written);
    ::close(writer);
  }
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
