#include "tanren/comm/control/control.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/control/messages.h"

#include <gtest/gtest.h>

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace tanren {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using Channel = std::unique_ptr<ControlChannel>;

// The channels of a run whose ranks are threads, as long as the test lasts.
class ControlGroup {
 public:
  explicit ControlGroup(int size, std::chrono::milliseconds timeout = 30s)
      : size_(size), timeout_(timeout), listener_(listening_socket("127.0.0.1", 0, false)) {
    port_ = port_of(listener_);
  }
  int port() const { return port_; }
  ControlChannel::Options options(int rank) const { return {rank, size_, "r1", timeout_}; }
  Channel channel(int rank) {
    return ControlChannel::open(
        rank == 0
            ? std::move(listener_)
            : connected_socket("127.0.0.1", port_, std::chrono::steady_clock::now() + timeout_),
        options(rank));
  }
  // All channels, by rank.
  std::vector<Channel> open() {
    std::vector<Channel> channels(static_cast<size_t>(size_));
    on_threads([&](int rank) { channels[static_cast<size_t>(rank)] = channel(rank); });
    return channels;
  }
  void on_threads(const std::function<void(int)>& work) const {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) threads.emplace_back(work, rank);
    for (auto& thread : threads) thread.join();
  }

 private:
  int size_;
  std::chrono::milliseconds timeout_;
  Socket listener_;
  int port_;
};

void send_text(const Socket& socket, const std::string& text) {
  EXPECT_EQ(::send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// The text received until the other side closes.
std::string all_received(Socket socket) {
  ControlLines lines(std::move(socket));
  std::string all;
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (lines.is_open() && std::chrono::steady_clock::now() < end) {
    for (const auto& line : lines.received()) all += line + "\n";
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_FALSE(lines.is_open()) << "it was not closed";
  return all;
}

Socket peer_at(int port) {
  return connected_socket("127.0.0.1", port, std::chrono::steady_clock::now() + 5s);
}

TEST(ControlChannel, who_does_not_come_is_named_on_all_that_came) {
  ControlGroup group(4, 300ms);
  std::vector<std::string> errors(4);
  group.on_threads([&](int rank) {
    if (rank == 2) return;
    errors[static_cast<size_t>(rank)] = error_of<CommError>([&] { group.channel(rank); });
  });
  for (const size_t rank : {0, 1, 3}) {
    TANREN_EXPECT_CONTAINS(errors[rank], "these ranks of 4 have not reached the control channel");
    TANREN_EXPECT_CONTAINS(errors[rank], ": 2;");
  }
}

TEST(ControlChannel, without_rank_0_it_says_that_nobody_receives) {
  const int port = port_of(listening_socket("127.0.0.1", 0, false));  // closed again
  TANREN_EXPECT_CONTAINS(
      error_of<CommError>(
          [&] { connected_socket("127.0.0.1", port, std::chrono::steady_clock::now() + 200ms); }),
      "nobody receives at 127.0.0.1:" + std::to_string(port));
}

TEST(ControlChannel, unverified_peers_are_refused_and_disturb_nobody) {
  ControlGroup group(2);
  std::vector<Channel> channels(2);
  std::thread leader([&] { channels[0] = group.channel(0); });
  const Socket silent = peer_at(group.port());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"GET / HTTP/1.1\r\n\r\n", "no way to begin"},
      {std::string("\x16\x03\x01\0\n", 5), "no way to begin"},
      {"hello\n", "no way to begin"},
      {"hello 2 r1 2 1\n", "no way to begin"},
      {"hello r1 2 1 77 node\n", "another version of tanren"},  // without a version
      {"hello 3 r1 2 1 77 node\n", "another version of tanren"},
      {"hello 2 r2 2 1 77 node\n", "another run"},
      {"hello 2 r1 3 1 77 node\n", "it says rank 1 of 3, and this run has 2"},
      {"hello 2 r1 2 0 77 node\n", "it says rank 0 of 2"},
      {"hello 2 r1 2 2 77 node\n", "it says rank 2 of 2"},
      {"hello 2 r1 2 -1 77 node\n", "it says rank -1 of 2"},
      {"hello 2 r1 2 1x 77 node\n", "it says rank -1 of 2"}};
  for (const auto& [said, answer] : cases) {
    Socket peer = peer_at(group.port());
    send_text(peer, said);
    const std::string received = all_received(std::move(peer));
    TANREN_EXPECT_CONTAINS(received, answer);
  }
  Socket endless = peer_at(group.port());
  send_text(endless, std::string(ControlLines::kMaxLine + 4096, 'x'));
  EXPECT_EQ(all_received(std::move(endless)), "");
  channels[1] = group.channel(1);
  leader.join();
  channels[1]->fail("still heard");
  EXPECT_EQ(channels[0]->failure(10s), "[comm] rank 1: still heard");
}

TEST(ControlChannel, names_who_has_started_the_fewest_operations_and_not_this_one) {
  ControlGroup group(3);
  auto channels = group.open();
  for (const int rank : {0, 1, 1, 2, 2, 2}) channels[static_cast<size_t>(rank)]->count_operation();
  channels[0]->set_state("step 1");
  const std::string of_0 =
      "rank 0 is late: it answers, and at step 1 it has started 1 of 3 operations; ";
  TANREN_EXPECT_CONTAINS(channels[2]->held_up_by(3, "is late"), of_0);
  channels[0]->count_operation();
  channels[0]->count_operation();
  channels[1]->set_state("step 2");
  for (const size_t rank : {0, 2}) {
    TANREN_EXPECT_CONTAINS(channels[rank]->held_up_by(3, "is late"),
                           "rank 1 is late: it answers, and at step 2 it has started 2 of 3");
  }
  EXPECT_EQ(channels[2]->held_up_by(2, "is late"), "");
  channels[1]->leave();
  EXPECT_EQ(channels[2]->held_up_by(3, "is late"), "");
}

// Questions that come within 100 ms share one round of replies.
void wait_for_a_new_round() { std::this_thread::sleep_for(150ms); }

TEST(ControlChannel, counts_the_operations_of_a_part_apart_and_asks_its_ranks_alone) {
  ControlGroup group(4);
  auto channels = group.open();
  const ControlPart part{2, {1, 3}};
  for (const size_t rank : {0, 1, 2, 3}) channels[rank]->count_operation();
  EXPECT_EQ(channels[3]->count_operation(2), 1);
  EXPECT_EQ(channels[3]->count_operation(2), 2);
  for (const size_t rank : {1, 3}) channels[rank]->join(part);
  for (const size_t rank : {0, 2}) channels[rank]->join({2, {0, 2}});
  for (const size_t rank : {1, 0}) channels[rank]->count_operation(1);
  TANREN_EXPECT_CONTAINS(channels[3]->held_up_by(2, "is late", part),
                         "rank 1 is late: it answers, and at its start it has started 0 of 2");
  EXPECT_EQ(channels[3]->held_up_by(1, "is late"), "");
  const ControlChannel::AwaitScope waits(channels[1]->mailbox(), awaited_message(2, true, "", 8));
  wait_for_a_new_round();
  TANREN_EXPECT_CONTAINS(channels[3]->held_up_by(2, "is late", part),
                         "of 2 operations; it waits for rank 2 to send a message (8 bytes), and "
                         "rank 2, at its start, holds it up: it waits for no other rank");
}

// All of their numbers would be longer than a line may be.
TEST(ControlChannel, asks_for_a_part_of_thousands_of_ranks) {
  ControlGroup group(2);
  auto channels = group.open();
  ControlPart part{1, std::vector<int>(5000)};
  std::iota(part.ranks.begin(), part.ranks.end(), 0);
  for (const auto& channel : channels) channel->join(part);
  TANREN_EXPECT_CONTAINS(
      channels[1]->held_up_by(channels[1]->count_operation(1), "is late", part),
      "rank 0 is late: it answers, and at its start it has started 0 of 1 operations");
}

TEST(ControlChannel, goes_on_from_a_rank_that_waits_in_a_sum_to_the_one_that_is_late_for_it) {
  ControlGroup group(5);
  auto channels = group.open();
  // Parts of one index. Ranks 0 and 4 have also started no operation, but are in another part.
  for (const size_t rank : {0, 4}) channels[rank]->join({1, {0, 4}});
  for (const size_t rank : {1, 2, 3}) channels[rank]->join({1, {1, 2, 3}});
  for (const size_t rank : {1, 1, 2, 2, 3}) channels[rank]->count_operation(1);
  channels[3]->set_state("step 7");
  const Awaited sum{-1, "a sum over ranks 1, 2, 3", 1, 2};
  const ControlChannel::AwaitScope first(channels[1]->mailbox(), sum);
  TANREN_EXPECT_CONTAINS(
      channels[0]->held_up_by_message(1, "is late"),
      "rank 3 is late: it answers, and is at step 7; it waits for no other rank; its own code");
  {
    const ControlChannel::AwaitScope second(channels[3]->mailbox(),
                                            awaited_message(0, true, "", 8));
    wait_for_a_new_round();
    TANREN_EXPECT_CONTAINS(channels[0]->held_up_by_message(1, "is late"),
                           "rank 1 is late: it answers, and is at its start; it waits itself for a "
                           "sum over ranks 1, 2, 3; these ranks wait for each other");
  }
  channels[3]->count_operation(1);
  wait_for_a_new_round();
  TANREN_EXPECT_CONTAINS(channels[0]->held_up_by_message(1, "is late"),
                         "it waits itself for a sum over ranks 1, 2, 3, in which no other rank is");
}

TEST(ControlChannel, names_the_end_of_the_waits_for_messages) {
  ControlGroup group(4);
  auto channels = group.open();
  channels[3]->set_state("step 7");
  const auto ask = [&](int asking, int awaited) {
    wait_for_a_new_round();
    return channels[static_cast<size_t>(asking)]->held_up_by_message(awaited, "is late");
  };
  const Awaited of_2 = awaited_message(2, true, "the gradient of microbatch 3", 64);
  const Awaited of_3 = awaited_message(3, false, "", 8);
  const ControlChannel::AwaitScope first(channels[0]->mailbox(), of_2);
  {
    const ControlChannel::AwaitScope second(channels[2]->mailbox(), of_3);
    for (const int asking : {0, 1}) {
      TANREN_EXPECT_CONTAINS(ask(asking, 2),
                             "rank 3 is late: it answers, and is at step 7; it waits for no other");
    }
    const ControlChannel::AwaitScope third(channels[3]->mailbox(), awaited_message(0, true, "", 8));
    TANREN_EXPECT_CONTAINS(ask(0, 2),
                           "rank 2 is late: it answers, and is at its start; it waits "
                           "itself for rank 3 to take a message (8 bytes); these ranks wait");
  }
  TANREN_EXPECT_CONTAINS(ask(1, 0),
                         "rank 2 is late: it answers, and is at its start; it waits for no");
  channels[2]->leave();
  TANREN_EXPECT_CONTAINS(ask(1, 0), "rank 2 is late: it has left");
}

TEST(ControlChannel, names_who_does_not_answer) {
  ControlGroup group(3);
  std::vector<Channel> channels(2);
  std::thread first([&] { channels[0] = group.channel(0); });
  std::thread second([&] { channels[1] = group.channel(1); });
  const Socket silent = peer_at(group.port());
  send_text(silent, "hello 2 r1 3 2 77 node\nstate step 7\n");
  first.join();
  second.join();
  std::vector<std::string> texts(2);
  std::thread asks([&] { texts[1] = channels[1]->held_up_by(1, "is late"); });
  texts[0] = channels[0]->held_up_by(1, "is late");
  asks.join();
  for (const auto& text : texts) {
    TANREN_EXPECT_CONTAINS(text, "rank 2 is late: its process does not answer (");
    TANREN_EXPECT_CONTAINS(text, " s ago at step 7");
  }
}

TEST(ControlChannel, a_rank_0_that_does_not_answer_is_named_by_the_others) {
  Socket listener = listening_socket("127.0.0.1", 0, false);
  Channel channel;
  std::thread joins([&] {
    channel = ControlChannel::open(peer_at(port_of(listener)), {1, 2, "r1", 20s});
  });
  Socket server;
  while (!server) server = Socket(::accept(listener.descriptor(), nullptr, nullptr));
  send_text(server, "welcome 77 node\nstate step 9\n");
  joins.join();
  const std::string text = channel->held_up_by(1, "is late");
  TANREN_EXPECT_CONTAINS(text, "rank 0 is late: its process does not answer (");
  TANREN_EXPECT_CONTAINS(text, " s ago at step 9");
}

TEST(ControlChannel, an_unverified_peer_behind_the_last_rank_is_let_go) {
  ControlGroup group(2);
  std::string answer;
  Channel leader;
  std::thread thread([&] { leader = group.channel(0); });
  const Socket rank = peer_at(group.port());
  std::this_thread::sleep_for(50ms);  // so that they come in this order
  Socket peer = peer_at(group.port());
  std::this_thread::sleep_for(50ms);
  send_text(rank, "hello 2 r1 2 1 77 node\n");
  EXPECT_EQ(all_received(std::move(peer)), "");
  send_text(rank, "fail [comm] rank 1: still heard\n");
  thread.join();
  EXPECT_EQ(leader->failure(10s), "[comm] rank 1: still heard");
}

TEST(ControlChannel, a_second_process_of_one_rank_is_refused) {
  ControlGroup group(3);
  std::vector<Channel> channels(3);
  std::thread leader([&] { channels[0] = group.channel(0); });
  std::atomic<int> refused = 0;
  const auto come = [&] {
    try {
      const auto channel = group.channel(1);
      channel->leave();
    } catch (const CommError& error) {
      TANREN_EXPECT_CONTAINS(error.what(), "rank 1 is here already");
      ++refused;
    }
  };
  std::thread first(come), second(come);
  while (refused == 0) std::this_thread::sleep_for(1ms);
  channels[2] = group.channel(2);
  for (auto* thread : {&leader, &first, &second}) thread->join();
  EXPECT_EQ(refused, 1);
}

TEST(ControlChannel, the_cause_of_one_rank_is_the_same_failure_on_all) {
  for (const int size : {1, 2, 3, 4}) {
    for (int failing = 0; failing < size; ++failing) {
      ControlGroup group(size);
      auto channels = group.open();
      channels[static_cast<size_t>(failing)]->fail("[data] line 3 is\nno number");
      for (const auto& channel : channels) {
        EXPECT_EQ(channel->failure(10s),
                  "[comm] rank " + std::to_string(failing) + ": [data] line 3 is no number");
      }
    }
  }
}

TEST(ControlChannel, the_first_failure_stays) {
  ControlGroup group(3);
  const auto channels = group.open();
  channels[2]->fail("first");
  EXPECT_EQ(channels[1]->failure(10s), "[comm] rank 2: first");
  channels[1]->fail("second");
  channels[0]->fail("third");
  for (const auto& channel : channels) EXPECT_EQ(channel->failure(10s), "[comm] rank 2: first");
}

TEST(ControlChannel, a_rank_that_goes_without_goodbye_is_named_with_where_it_was) {
  for (const int size : {2, 3, 4}) {
    for (int going = 0; going < size; ++going) {
      ControlGroup group(size);
      auto channels = group.open();
      channels[static_cast<size_t>(going)]->set_state("step 119");
      channels[static_cast<size_t>(going)]->set_state("step 120");
      // Its state is sent a few times a second.
      const auto watcher = static_cast<size_t>(going == 0 ? 1 : 0);
      const std::string state = "rank " + std::to_string(going) + " at step 120";
      while (channels[watcher]->standing().find(state) == std::string::npos) {
        std::this_thread::sleep_for(5ms);
      }
      channels[static_cast<size_t>(going)].reset();
      for (const auto& channel : channels) {
        if (channel == nullptr) continue;
        const std::string why = channel->failure(10s).value_or("");
        TANREN_EXPECT_CONTAINS(why, "[comm] rank " + std::to_string(going) + " (" + machine_name() +
                                        ", pid " + std::to_string(::getpid()) +
                                        ") is gone without a word (last heard at step 120); ");
      }
    }
  }
}

TEST(ControlChannel, a_goodbye_is_no_failure) {
  for (const int size : {1, 2, 4}) {
    for (int first = 0; first < size; ++first) {
      ControlGroup group(size);
      auto channels = group.open();
      channels[static_cast<size_t>(first)]->leave();
      channels[static_cast<size_t>(first)].reset();
      for (auto& channel : channels) {
        if (channel == nullptr) continue;
        EXPECT_FALSE(channel->failure(20ms).has_value());
        channel->leave();
      }
    }
  }
}

TEST(ControlChannel, who_has_left_is_known_to_rank_0) {
  ControlGroup group(3);
  const auto channels = group.open();
  channels[2]->leave();
  while (channels[0]->standing() != "rank 0 at its start, rank 1 at its start, rank 2 has left") {
    std::this_thread::sleep_for(5ms);
  }
}

TEST(ControlChannel, the_callback_comes_once_and_not_for_what_this_rank_said) {
  ControlGroup group(3);
  const auto channels = group.open();
  std::vector<std::atomic<int>> calls(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    channels[rank]->on_failure([&, rank](const std::string& why) {
      EXPECT_EQ(why, "[comm] rank 1: no memory");
      ++calls[rank];
    });
  }
  channels[1]->fail("no memory");
  channels[1]->fail("and again");
  while (calls[0] == 0 || calls[2] == 0) std::this_thread::sleep_for(1ms);
  for (const auto& channel : channels) channel->on_failure(nullptr);
  EXPECT_EQ(calls[0], 1);
  EXPECT_EQ(calls[1], 0);
  EXPECT_EQ(calls[2], 1);
}

TEST(ControlChannel, a_callback_that_comes_after_the_failure_is_called_at_once) {
  ControlGroup group(2);
  const auto channels = group.open();
  channels[1]->fail("no memory");
  EXPECT_TRUE(channels[0]->failure(10s));
  std::string heard;
  channels[0]->on_failure([&](const std::string& why) { heard = why; });
  EXPECT_EQ(heard, "[comm] rank 1: no memory");
}

TEST(ControlChannel, signals_interrupt_nothing) {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART: system calls end with EINTR
  struct sigaction before {};
  ::sigaction(SIGUSR1, &action, &before);
  ControlGroup group(2);
  std::vector<Channel> channels(2);
  std::atomic<bool> done = false;
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      auto channel = group.channel(rank);
      if (rank == 1) {
        for (int step = 0; step < 50; ++step) {
          channel->set_state("step " + std::to_string(step));
          std::this_thread::sleep_for(1ms);
        }
        channel->fail("after many signals");
      }
      EXPECT_EQ(channel->failure(20s), "[comm] rank 1: after many signals");
      while (!done) std::this_thread::sleep_for(1ms);
    });
  }
  for (int i = 0; i < 300; ++i) {
    for (auto& rank : ranks) ::pthread_kill(rank.native_handle(), SIGUSR1);
    ::kill(::getpid(), SIGUSR1);
    std::this_thread::sleep_for(200us);
  }
  done = true;
  for (auto& rank : ranks) rank.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(ControlLines, a_line_may_come_byte_by_byte_and_many_at_once) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Socket from(pair[0]);
  ControlLines lines{Socket(pair[1])};
  EXPECT_TRUE(lines.received().empty());
  for (const char c : std::string("state a b")) {
    send_text(from, std::string(1, c));
    EXPECT_TRUE(lines.received().empty());
  }
  send_text(from, "\nbye\n\npart");
  EXPECT_EQ(lines.received(), (std::vector<std::string>{"state a b", "bye", ""}));
  send_text(from, "ly\n");
  EXPECT_EQ(lines.received(), std::vector<std::string>{"partly"});
}

TEST(ControlLines, what_does_not_go_at_once_goes_later_and_whole) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  ControlLines from{Socket(pair[0])}, to{Socket(pair[1])};
  std::vector<std::string> sent, came;
  for (int i = 0; i < 200; ++i) {
    sent.emplace_back(size_t{4000}, static_cast<char>('a' + i % 26));
    from.send(sent.back());
  }
  EXPECT_TRUE(from.has_unsent());
  while (came.size() < sent.size()) {
    for (auto& line : to.received()) came.push_back(std::move(line));
    from.flush();
  }
  EXPECT_EQ(came, sent);
}

TEST(ControlLines, a_text_of_several_lines_stays_in_one) {
  EXPECT_EQ(as_control_text("a\nb\r\tc\x7F"), "a b  c ");
  EXPECT_EQ(as_control_text(std::string(100'000, 'x')).size(), 4000u);
}

}  // namespace
}  // namespace tanren
