// Ranks that are real processes and are killed, fail or leave: the others end soon and name the
// rank and the reason. Designed for 2 seconds; the tests allow 10.
#include "tanren/base/testing.h"
#include "tests/support/child.h"
#include "tests/support/forked.h"
#include "tests/support/taken_port.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

namespace tanren {
namespace {

using namespace std::chrono_literals;
using testing::Child;
using testing::TemporaryFolder;
using Clock = Child::Clock;

class Ranks {
 public:
  Ranks(int size, const std::string& what, const std::vector<std::string>& environment = {}) {
    const std::string rendezvous = "file://" + (folder_.path() / "rendezvous").string();
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<std::string> command = {TANREN_COMM_RANK, what, std::to_string(rank),
                                                std::to_string(size), rendezvous};
      // The dynamic loader reads the environment only when a program starts, so a rank with its own
      // environment is no fork.
      children_.push_back(environment.empty() ? testing::forked_child(command)
                                              : Child(command, environment));
    }
  }
  Child& operator[](int rank) { return children_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(children_.size()); }
  void await(const std::string& part) {
    for (auto& child : children_) ASSERT_TRUE(child.await(part, 60s)) << child.text();
  }

 private:
  TemporaryFolder folder_;
  std::vector<Child> children_;
};

// Kills `victim`, and expects the others to end within 10 s with an error that names it.
void expect_all_name_the_lost(Ranks& ranks, int victim,
                              const std::string& heard = "last heard at step ") {
  const auto start = Clock::now();
  ranks[victim].signal(SIGKILL);
  EXPECT_EQ(ranks[victim].ended(10s), 128 + SIGKILL);
  char machine[256] = {};
  ::gethostname(machine, sizeof machine - 1);
  const std::string lost = "[comm] rank " + std::to_string(victim) + " (" + machine + ", pid " +
                           std::to_string(ranks[victim].pid()) + ") is gone without a word (" +
                           heard;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks[rank].ended(10s), 3) << ranks[rank].text();
    TANREN_EXPECT_CONTAINS(ranks[rank].text(), lost);
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  EXPECT_LT(took.count(), 10);
  ::testing::Test::RecordProperty("seconds", std::to_string(took.count()));
  std::printf("the others ended after %.2f s\n", took.count());
}

class LostRank : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Each, LostRank, ::testing::Values(0, 1, 2, 3));

TEST_P(LostRank, of_four_that_is_killed_among_sums_is_named_by_the_others) {
  Ranks ranks(4, "sums");
  ranks.await("step 20 is done");
  expect_all_name_the_lost(ranks, GetParam());
}

TEST_P(LostRank, of_four_that_is_killed_outside_of_all_collectives_is_named_by_the_others) {
  Ranks ranks(4, "alone");
  ranks.await("step 200 is done");
  expect_all_name_the_lost(ranks, GetParam());
}

TEST_P(LostRank, of_four_that_is_killed_while_a_sum_waits_is_named_by_the_others) {
  Ranks ranks(4, "late");
  ASSERT_TRUE(ranks[3].await("step 200 is done", 60s)) << ranks[3].text();
  expect_all_name_the_lost(ranks, GetParam());
}

TEST_P(LostRank, of_four_that_is_killed_while_messages_wait_is_named_with_what_each_awaited) {
  Ranks ranks(4, "chain");
  ASSERT_TRUE(ranks[3].await("step 200 is done", 60s)) << ranks[3].text();
  expect_all_name_the_lost(ranks, GetParam());
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == GetParam()) continue;
    TANREN_EXPECT_CONTAINS(ranks[rank].text(),
                           "; rank " + std::to_string(rank) + " waited for rank " +
                               std::to_string(rank + 1) +
                               " to send the gradient of microbatch 3 (1200000 bytes)");
  }
}

// When a connection breaks, Gloo does not wake a rank that waits for the rest of a payload.
TEST(LostRanks, amid_a_large_payload_are_named_too) {
  for (const int victim : {0, 1, 2}) {
    Ranks ranks(3, "broadcasts");
    ranks.await("step 5 is done");
    expect_all_name_the_lost(ranks, victim);
  }
}

TEST(LostRanks, amid_a_large_message_are_named_too) {
  for (const int victim : {0, 1, 2}) {
    Ranks ranks(3, "ring");
    ranks.await("step 5 is done");
    expect_all_name_the_lost(ranks, victim);
  }
}

// All ranks have met and Gloo is connecting them, which cannot be aborted.
TEST(LostRanks, while_the_others_connect_are_named_too) {
  Ranks ranks(3, "absent");
  ASSERT_TRUE(ranks[2].await("met", 60s)) << ranks[2].text();
  std::this_thread::sleep_for(300ms);
  expect_all_name_the_lost(ranks, 2, "it had not said where it was");
}

TEST(LostRanks, in_worlds_of_two_and_three_too) {
  for (const int size : {2, 3}) {
    Ranks ranks(size, "sums");
    ranks.await("step 20 is done");
    expect_all_name_the_lost(ranks, size - 1);
  }
}

// The connections of a stopped rank stay open, so only the timeout reveals it.
TEST(LostRanks, that_are_stopped_are_named_when_the_timeout_ends) {
  Ranks of_three(3, "impatient"), of_two(2, "impatient");
  const auto stop = [](Ranks& ranks, int victim) {
    ranks.await("step 20 is done");
    ranks[victim].signal(SIGSTOP);
  };
  const auto expect_named = [](Ranks& ranks, int victim) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[rank].ended(40s), 3) << ranks[rank].text();
      TANREN_EXPECT_CONTAINS(
          ranks[rank].text(),
          "[comm] rank " + std::to_string(victim) + " did not come to a sum over gloo and " +
              std::to_string(ranks.size()) +
              " ranks within 5 s (parallel.timeout): its process does not answer");
      TANREN_EXPECT_CONTAINS(ranks[rank].text(), " s ago at step ");
    }
  };
  stop(of_three, 1);
  stop(of_two, 0);
  expect_named(of_three, 1);
  expect_named(of_two, 0);
}

TEST(LostRanks, that_are_stopped_amid_messages_are_named_with_what_was_awaited) {
  Ranks ranks(3, "impatient ring");
  ranks.await("step 20 is done");
  ranks[1].signal(SIGSTOP);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks[rank].ended(40s), 3) << ranks[rank].text();
    TANREN_EXPECT_CONTAINS(ranks[rank].text(), "[comm] rank 1 holds up rank ");
    TANREN_EXPECT_CONTAINS(ranks[rank].text(),
                           ", which has waited 5 s (parallel.timeout) for rank ");
    TANREN_EXPECT_CONTAINS(ranks[rank].text(), " the row of step ");
    TANREN_EXPECT_CONTAINS(ranks[rank].text(), ": its process does not answer");
  }
}

// Rank 0 holds the store and is stopped, so it no longer answers. Rank 2 never starts.
TEST(LostRanks, that_stop_at_the_rendezvous_keep_nobody_there) {
  const std::string rendezvous = "tcp://127.0.0.1:" + testing::TakenPort().text();
  const auto rank = [&](const std::string& number) {
    return Child({TANREN_COMM_RANK, "impatient", number, "3", rendezvous});
  };
  Child stopped = rank("0"), other = rank("1");
  for (Child* child : {&stopped, &other}) ASSERT_TRUE(child->await("begun", 60s));
  std::this_thread::sleep_for(2s);  // until both are at the rendezvous
  stopped.signal(SIGSTOP);
  EXPECT_EQ(other.ended(40s), 3) << other.text();
  TANREN_EXPECT_CONTAINS(other.text(),
                         "has no answer there after 5 s: rank 0's process is stopped");
}

TEST(FailedRank, s_own_error_reaches_all_that_wait) {
  for (const int size : {1, 2, 4}) {
    Ranks ranks(size, "error");
    for (int rank = 0; rank < size; ++rank) {
      const bool is_it = rank == size - 1;
      EXPECT_EQ(ranks[rank].ended(60s), is_it ? 4 : 3) << ranks[rank].text();
      TANREN_EXPECT_CONTAINS(ranks[rank].text(), is_it
                                                     ? "\n[data] row 7 has 3 columns\n"
                                                     : "\n[comm] rank " + std::to_string(size - 1) +
                                                           ": [data] row 7 has 3 columns\n");
    }
  }
}

TEST(LeavingRank, disturbs_nobody) {
  for (const int size : {1, 2, 3, 4}) {
    Ranks ranks(size, "leave");
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(ranks[rank].ended(60s), 0) << ranks[rank].text();
    }
  }
}

// Loads a fake plugin that has no collectives.
TEST(NcclPlugin, is_loaded_from_the_library_path_and_given_rank_size_and_device) {
  Ranks ranks(2, "nccl", {"LD_LIBRARY_PATH=" TANREN_FAKE_PLUGIN_FOLDER});
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks[rank].ended(60s), 0) << ranks[rank].text();
    EXPECT_EQ(ranks[rank].text(), "nccl of 2 on cuda:0\n");
  }
}

TEST(NcclPlugin, that_is_missing_is_said_with_what_to_do) {
  Ranks ranks(2, "nccl");
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks[rank].ended(60s), 3) << ranks[rank].text();
    TANREN_EXPECT_CONTAINS(ranks[rank].text(), "[comm] backend nccl: the plugin libtanren_cuda.so");
  }
}

}  // namespace
}  // namespace tanren
