#include "tanren/comm/rendezvous.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

namespace tanren {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::free_rendezvous;
using testing::TemporaryFolder;
using testing::world_at;

// Both kinds of place: they must report the same errors.
class RendezvousAt : public ::testing::TestWithParam<const char*> {
 protected:
  std::string place() const {
    return std::string(GetParam()) == "file" ? "file://" + (folder_.path() / "rendezvous").string()
                                             : free_rendezvous();
  }
  // The error of each world's rendezvous; empty if the ranks met.
  static std::vector<std::string> errors_of(const std::vector<World>& worlds,
                                            std::chrono::milliseconds timeout) {
    std::vector<std::string> errors(worlds.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < worlds.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          join_rendezvous(worlds[i], timeout).control->leave();
        } catch (const CommError& error) {
          errors[i] = error.what();
        } catch (const ConfigError& error) {
          errors[i] = std::string("input: ") + error.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    return errors;
  }

 private:
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Both, RendezvousAt, ::testing::Values("tcp", "file"));

TEST_P(RendezvousAt, a_rank_that_does_not_come_is_named_on_all) {
  const std::string rendezvous = place();
  const auto errors = errors_of({world_at(0, 4, rendezvous), world_at(2, 4, rendezvous)}, 300ms);
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error, "[comm] after 0.3 s these ranks of 4 have not come to " +
                                      place_of(world_at(0, 4, rendezvous)) + ": 1, 3");
  }
}

TEST_P(RendezvousAt, two_processes_with_one_rank_are_told_and_so_are_the_others) {
  const std::string rendezvous = place();
  const auto errors = errors_of(
      {world_at(0, 3, rendezvous), world_at(1, 3, rendezvous), world_at(1, 3, rendezvous)}, 20s);
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error, "input: [comm] two processes say that they are rank 1 of 3");
    TANREN_EXPECT_CONTAINS(error, "pid " + std::to_string(::getpid()));
  }
}

TEST_P(RendezvousAt, ranks_that_count_other_ranks_are_told_on_all) {
  const std::string rendezvous = place();
  for (const auto& error : errors_of(
           {world_at(0, 3, rendezvous), world_at(1, 3, rendezvous), world_at(2, 4, rendezvous)},
           20s)) {
    TANREN_EXPECT_CONTAINS(error, "input: [comm] rank 2 (");
    TANREN_EXPECT_CONTAINS(error, "was started as one of 4 ranks, rank 0 at ");
    TANREN_EXPECT_CONTAINS(error, " as one of 3");
  }
}

TEST_P(RendezvousAt, all_that_come_meet) {
  for (const int size : {1, 2, 4}) {
    const std::string rendezvous =
        place() + (std::string(GetParam()) == "file" ? std::to_string(size) : "");
    std::vector<World> worlds;
    worlds.reserve(static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) worlds.push_back(world_at(rank, size, rendezvous));
    EXPECT_EQ(errors_of(worlds, 30s), std::vector<std::string>(worlds.size()));
  }
}

TEST_P(RendezvousAt, ranks_of_several_machines_meet) {
  const std::string rendezvous = place();
  std::vector<World> worlds;
  for (int rank = 0; rank < 2; ++rank) {
    worlds.push_back(world_at(rank, 2, rendezvous));
    worlds.back().local_rank = 0;
    worlds.back().local_size = 1;
  }
  EXPECT_EQ(errors_of(worlds, 30s), std::vector<std::string>(2));
}

TEST(Rendezvous, rank_0_that_is_not_there_is_said) {
  TANREN_EXPECT_CONTAINS(
      error_of<CommError>([] { join_rendezvous(world_at(1, 2, free_rendezvous()), 200ms); }),
      "rank 1 of 2 does not reach rank 0: nobody receives at 127.0.0.1:");
}

// The system accepts connections to the port, but no program answers.
TEST(Rendezvous, an_unverified_peer_at_the_port_that_stays_silent_is_said_when_the_timeout_ends) {
  Socket silent = listening_socket("127.0.0.1", 0, false);
  const std::string port = std::to_string(port_of(silent));
  const auto start = std::chrono::steady_clock::now();
  TANREN_EXPECT_CONTAINS(
      error_of<CommError>(
          [&] { join_rendezvous(world_at(1, 2, "tcp://127.0.0.1:" + port), 300ms); }),
      "[comm] something receives at 127.0.0.1:" + port +
          " and does not answer as rank 0 of a tanren run would: rank 1 of 2 gives up after 0.3 s; "
          "is rank 0 there");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  silent.release();  // open until the process ends: c10d is loud when its connection breaks
}

// Like a file of a process that was stopped while it wrote.
TEST(Rendezvous, a_file_that_stays_locked_is_said_when_the_timeout_ends) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rendezvous", "");
  const int locked = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(locked, LOCK_EX), 0);
  TANREN_EXPECT_CONTAINS(
      error_of<CommError>([&] { join_rendezvous(world_at(1, 2, "file://" + path), 300ms); }),
      "[comm] rank 1 of 2 came to " + path + " and has no answer there after 0.3 s: its disk");
  ::close(locked);
}

// Like a file of a process that was killed while it wrote: c10d keeps reading for the rest.
TEST(Rendezvous, a_file_that_is_half_written_is_said_when_the_timeout_ends) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rendezvous", "");
  const World world = world_at(1, 2, "file://" + path);
  EXPECT_THROW(join_rendezvous(world, 50ms), CommError);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  TANREN_EXPECT_CONTAINS(error_of<CommError>([&] { join_rendezvous(world, 300ms); }),
                         "left it half-written");
  std::filesystem::resize_file(path, size);  // restores the rest
}

TEST(Rendezvous, the_last_rank_that_leaves_removes_the_file) {
  for (int round = 0; round < 20; ++round) {  // the ranks end in any order
    const TemporaryFolder folder;
    const auto path = folder.path() / "rendezvous";
    std::latch all_met(3);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        const Rendezvous rendezvous =
            join_rendezvous(world_at(rank, 3, "file://" + path.string()), 20s);
        EXPECT_TRUE(std::filesystem::exists(path));
        all_met.arrive_and_wait();
      });
    }
    for (auto& rank : ranks) rank.join();
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

// c10d's own destructor writes into the file, which would end the process.
TEST(Rendezvous, what_has_become_of_the_file_does_not_matter_at_its_end) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "rendezvous";
  const Rendezvous rendezvous = join_rendezvous(world_at(0, 1, "file://" + path.string()), 20s);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);  // cannot be opened, like a removed file
}

// The destructor tries to lock the file for some seconds, and the file stays.
TEST(Rendezvous, a_file_that_another_process_locks_holds_nobody_at_its_end) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "rendezvous";
  int locked = -1;
  {
    const Rendezvous rendezvous = join_rendezvous(world_at(0, 1, "file://" + path.string()), 20s);
    locked = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::flock(locked, LOCK_EX), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  ::close(locked);
}

TEST(Rendezvous, an_occupied_port_is_said_at_once) {
  const Socket occupied = listening_socket("127.0.0.1", 0, false);
  const std::string port = std::to_string(port_of(occupied));
  const std::string error = error_of<ConfigError>(
      [&] { join_rendezvous(world_at(0, 2, "tcp://127.0.0.1:" + port), 60s); });
  TANREN_EXPECT_CONTAINS(error, "at port " + port + " of 127.0.0.1: Address already in use");
}

TEST(Rendezvous, a_host_of_no_address_is_said) {
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>(
          [] { join_rendezvous(world_at(1, 2, "tcp://no.such.host.invalid:29500"), 200ms); }),
      "the host \"no.such.host.invalid\" has no address");
}

TEST(Rendezvous, a_file_in_no_folder_is_said_at_once) {
  const TemporaryFolder folder;
  const std::string missing = (folder.path() / "none").string();
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] {
                           join_rendezvous(world_at(0, 2, "file://" + missing + "/meet"), 60s);
                         }),
                         "there is no folder " + missing);
}

TEST(Rendezvous, a_file_of_an_earlier_run_is_not_taken_for_this_one) {
  const TemporaryFolder folder;
  const std::string rendezvous = "file://" + (folder.path() / "rendezvous").string();
  EXPECT_THROW(join_rendezvous(world_at(1, 2, rendezvous), 50ms), CommError);
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { join_rendezvous(world_at(1, 2, rendezvous), 20s); }), "new file");
}

TEST(Rendezvous, a_second_start_of_the_run_has_a_store_of_its_own) {
  const TemporaryFolder folder;
  World world = world_at(0, 1, "file://" + (folder.path() / "rendezvous").string());
  world.size = 2;
  EXPECT_THROW(join_rendezvous(world, 50ms), CommError);
  world.attempt = "1";
  TANREN_EXPECT_CONTAINS(error_of<CommError>([&] { join_rendezvous(world, 50ms); }),
                         "have not come");
}

}  // namespace
}  // namespace tanren
