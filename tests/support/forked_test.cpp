// Commands of tests as forks of one process (forked.h): their exit codes, their process ids, and a
// server that outlives its clients. The program is the shell, which loads quickly.
#include "tests/support/forked.h"
#include "tests/support/child.h"
#include "tests/support/fork_request.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

namespace tanren::testing {
namespace {

using std::chrono::seconds;

const std::string kShell = "/bin/sh";

class Forked : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ForkServer::of(kShell) == nullptr) GTEST_SKIP() << "nothing is a fork here";
  }
  static Child start(const std::string& line) { return forked_child({kShell, "-c", line}); }
};

// Connects to the server and leaves after sending `num_bytes` of a request without streams.
void break_off(size_t num_bytes) {
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t length = fork_address(ForkServer::of(kShell)->name(), address);
  ASSERT_EQ(::connect(connection, reinterpret_cast<const sockaddr*>(&address), length), 0);
  const std::string bytes(num_bytes, '\1');
  ASSERT_EQ(::send(connection, bytes.data(), num_bytes, 0), static_cast<ssize_t>(num_bytes));
  ::close(connection);
}

TEST_F(Forked, ends_with_the_code_or_the_signal_of_the_command) {
  EXPECT_EQ(start("exit 0").ended(seconds(60)), 0);
  EXPECT_EQ(start("exit 7").ended(seconds(60)), 7);
  EXPECT_EQ(start("kill -TERM $$").ended(seconds(60)), 128 + SIGTERM);
  Child child = start("echo waits; exec sleep 600");
  ASSERT_TRUE(child.await("waits\n", seconds(60)));
  child.signal(SIGKILL);
  EXPECT_EQ(child.ended(seconds(60)), 128 + SIGKILL);
}

TEST_F(Forked, has_its_number_to_itself_until_the_test_knows_its_end) {
  Child child = start("exit 3");
  EXPECT_FALSE(child.await("\n", seconds(60)));  // its output has ended
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(::kill(child.pid(), 0), 0) << "another process may be " << child.pid();
    ::usleep(2000);
  }
  EXPECT_EQ(child.ended(seconds(60)), 3);
  EXPECT_TRUE(::kill(child.pid(), 0) == -1 && errno == ESRCH) << "it is not reaped";
}

TEST_F(Forked, begins_after_clients_that_broke_off) {
  Child before = start("echo waits; exec sleep 600");
  ASSERT_TRUE(before.await("waits\n", seconds(60)));
  for (const size_t num_bytes : {0, 3, 8, 100}) break_off(num_bytes);
  EXPECT_EQ(start("exit 5").ended(seconds(60)), 5);
  before.signal(SIGTERM);
  EXPECT_EQ(before.ended(seconds(60)), 128 + SIGTERM);
}

TEST_F(Forked, of_a_server_that_is_gone_ended_as_nobody_knows) {
  const ForkServer server("/bin/bash");
  const std::string line =
      "trap 'kill -KILL $PPID; exit' TERM; echo waits; while :; do sleep 0.01; done";
  Child child = server.start({"/bin/bash", "-c", line}, {});
  ASSERT_TRUE(child.await("waits\n", seconds(60)));
  child.signal(SIGTERM);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(child.ended(seconds(120)), -1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(100)) << "it was waited for";
}

TEST_F(Forked, has_dev_null_for_a_closed_stream) {
  const std::string line = forked(kShell, kShell);
  const auto folder = std::filesystem::temp_directory_path();
  for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
    EXPECT_EQ(shell(line + " -c 'exit 4' " + closed, folder).code, 4) << closed;
  }
}

TEST_F(Forked, without_a_server_is_refused_with_the_reason) {
  const auto result = shell(TANREN_FORK_CLIENT " tanren-forks-of-none " + kShell + " -c 'exit 0'",
                            std::filesystem::temp_directory_path());
  EXPECT_EQ(result.code, 127);
  EXPECT_EQ(result.output,
            "fork_client: no answer from tanren-forks-of-none: Connection refused\n");
}

}  // namespace
}  // namespace tanren::testing
