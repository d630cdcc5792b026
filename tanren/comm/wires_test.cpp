// Messages between two ranks and parts of the ranks, over the threads of a process and over Gloo.
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/comm/with_parts.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tanren {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::on_gloo_ranks;
using testing::on_ranks;
using testing::RankWork;
using WireClock = std::chrono::steady_clock;

constexpr const char* kGradient = "the gradient of microbatch 3";

class Wires : public ::testing::TestWithParam<const char*> {
 protected:
  static bool over_gloo() { return std::string(GetParam()) == "gloo"; }
  static void run(int size, const RankWork& work) {
    over_gloo() ? on_gloo_ranks(size, work) : on_ranks(size, work);
  }
  // With a timeout of 2 s.
  static void run_impatient(int size, const RankWork& work) {
    if (!over_gloo()) return on_ranks(ThreadGroup(size, {.timeout = 2s}), size, work);
    const testing::TemporaryFolder folder;
    const std::string rendezvous = "file://" + (folder.path() / "rendezvous").string();
    testing::run_ranks(
        size,
        [&](int rank) { return gloo_communicator(testing::world_at(rank, size, rendezvous), 2s); },
        work);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Wires, ::testing::Values("threads", "gloo"),
                         [](const auto& test) { return std::string(test.param); });

// Waits until the run is over; returns why.
std::string end_of_run(Communicator& comm) {
  const auto end = WireClock::now() + 30s;
  try {
    while (WireClock::now() < end) {
      comm.check();
      std::this_thread::sleep_for(1ms);
    }
  } catch (const CommError& error) {
    return error.what();
  }
  return "it did not end";
}

TEST_P(Wires, a_cancel_ends_a_receive_that_waits_and_says_what_was_awaited) {
  std::string error;
  std::atomic<WireClock::rep> cancelled = 0, ended = 0;
  std::latch started(2);
  run(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      started.arrive_and_wait();
      std::this_thread::sleep_for(200ms);  // until rank 0 waits
      cancelled = WireClock::now().time_since_epoch().count();
      return comm.cancel("it has no memory");
    }
    const auto work = comm.start_receive(at::zeros({2}), 1, kGradient);
    started.arrive_and_wait();
    error = error_of<CommError>([&] { work->wait(); });
    ended = WireClock::now().time_since_epoch().count();
    EXPECT_THROW(comm.start_send(at::zeros({2}), 1), CommError);
  });
  EXPECT_EQ(error,
            "[comm] rank 1: it has no memory; rank 0 waited for rank 1 to send the gradient of "
            "microbatch 3 (8 bytes)");
  // Designed for far less than a second.
  EXPECT_LT(WireClock::duration(ended - cancelled), 5s);
}

TEST_P(Wires, the_rank_that_holds_up_a_chain_of_waits_is_named_with_what_was_awaited) {
  std::vector<std::string> errors(3);
  run_impatient(3, [&](Communicator& comm) {
    comm.sum(at::zeros({1}));
    std::string& error = errors[static_cast<size_t>(comm.rank())];
    if (comm.rank() == 2) {  // never sends
      error = end_of_run(comm);
      return;
    }
    if (comm.rank() == 1) std::this_thread::sleep_for(300ms);  // so that rank 0 is the first to ask
    error = error_of<CommError>(
        [&] { comm.start_receive(at::zeros({2}), comm.rank() + 1, kGradient)->wait(); });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error,
                           "[comm] rank 2 holds up rank 0, which has waited 2 s (parallel.timeout) "
                           "for rank 1 to send the gradient of microbatch 3 (8 bytes): it ");
    TANREN_EXPECT_CONTAINS(error, "it waits for no other rank; its own code does not come back");
  }
  // Each rank that waited reports for what.
  TANREN_EXPECT_CONTAINS(errors[1],
                         "; rank 1 waited for rank 2 to send the gradient of microbatch");
}

TEST_P(Wires, two_that_wait_for_each_other_are_told_so) {
  std::vector<std::string> errors(2);
  run_impatient(2, [&](Communicator& comm) {
    comm.sum(at::zeros({1}));
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>(
        [&] { comm.start_receive(at::zeros({2}), 1 - comm.rank(), "what never comes")->wait(); });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error, "to send what never comes (8 bytes)");
    TANREN_EXPECT_CONTAINS(error, "their messages and sums do not match");
  }
}

TEST_P(Wires, a_rank_that_waits_in_a_sum_of_its_part_is_not_blamed_for_the_one_that_does_not_come) {
  std::vector<std::string> errors(3);
  run_impatient(3, [&](Communicator& comm) {
    const auto part = comm.split(comm.rank() == 0 ? 0 : 1);
    comm.sum(at::zeros({1}));
    std::string& error = errors[static_cast<size_t>(comm.rank())];
    if (comm.rank() == 2) {
      error = end_of_run(comm);
      return;
    }
    if (comm.rank() == 1) std::this_thread::sleep_for(300ms);  // so that rank 0 is the first to ask
    error = error_of<CommError>([&] {
      if (comm.rank() == 0) comm.start_receive(at::zeros({2}), 1, kGradient)->wait();
      if (comm.rank() == 1) part->sum(at::zeros({2}));
    });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error,
                           "[comm] rank 2 holds up rank 0, which has waited 2 s (parallel.timeout) "
                           "for rank 1 to send the gradient of microbatch 3 (8 bytes): it ");
    TANREN_EXPECT_CONTAINS(error, "it waits for no other rank");
  }
}

TEST_P(Wires, a_rank_that_is_late_for_a_sum_is_told_with_the_rank_that_holds_it_up) {
  std::vector<std::string> errors(3);
  run_impatient(3, [&](Communicator& comm) {
    const auto part = comm.split(comm.rank() == 2 ? 1 : 0);
    comm.sum(at::zeros({1}));
    std::string& error = errors[static_cast<size_t>(comm.rank())];
    if (comm.rank() == 2) {
      error = end_of_run(comm);
      return;
    }
    if (comm.rank() == 1) std::this_thread::sleep_for(300ms);  // so that rank 0 is the first to ask
    error = error_of<CommError>([&] {
      if (comm.rank() == 0) part->sum(at::zeros({2}));
      if (comm.rank() == 1) comm.start_receive(at::zeros({2}), 2, kGradient)->wait();
    });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error, "rank 1 did not come ");
    TANREN_EXPECT_CONTAINS(error,
                           "it waits for rank 2 to send the gradient of microbatch 3 (8 bytes), "
                           "and rank 2");
    TANREN_EXPECT_CONTAINS(error, " holds it up: it waits for no other rank");
  }
}

TEST_P(Wires, a_message_and_a_sum_that_wait_for_each_other_are_told_so) {
  std::vector<std::string> errors(2);
  run_impatient(2, [&](Communicator& comm) {
    comm.sum(at::zeros({1}));
    if (comm.rank() == 1) std::this_thread::sleep_for(300ms);  // so that rank 0 is the first to ask
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
      if (comm.rank() == 0) comm.start_receive(at::zeros({2}), 1, kGradient)->wait();
      if (comm.rank() == 1) comm.sum(at::zeros({2}));
    });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error, "[comm] rank 1 holds up rank 0");
    TANREN_EXPECT_CONTAINS(error, "it waits itself for a sum");
    TANREN_EXPECT_CONTAINS(error, "over all 2 ranks; these ranks wait for each other");
  }
}

// Gloo would end the process if the two messages matched.
TEST_P(Wires, messages_of_different_sizes_are_told_on_both_ranks) {
  std::vector<std::string> errors(2);
  run_impatient(2, [&](Communicator& comm) {
    comm.sum(at::zeros({1}));
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
      if (comm.rank() == 0) comm.start_receive(at::zeros({3}), 1, "a row")->wait();
      if (comm.rank() == 1) comm.start_send(at::zeros({4}), 0, "a row")->wait();
    });
  });
  const std::vector<std::string> parts =
      over_gloo() ? std::vector<std::string>{"rank 1 to send a row (12 bytes)",
                                             "rank 0 to take a row (16 bytes)", "do not match"}
                  : std::vector<std::string>{
                        "[comm] rank 1 sends a row of 4 Float elements to rank "
                        "0, which receives a row of 3 Float elements"};
  for (const auto& error : errors) {
    for (const auto& part : parts) TANREN_EXPECT_CONTAINS(error, part);
  }
}

TEST_P(Wires, messages_of_one_size_and_different_dtypes_are_told_on_both_ranks) {
  std::vector<std::string> errors(2);
  run_impatient(2, [&](Communicator& comm) {
    comm.sum(at::zeros({1}));
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
      if (comm.rank() == 0) comm.start_send(at::zeros({2}, at::kInt), 1)->wait();
      if (comm.rank() == 1) comm.start_receive(at::zeros({2}), 0)->wait();
    });
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(error, over_gloo() ? "do not match" : "of 2 Int elements to rank 1");
  }
}

TEST_P(Wires, what_is_no_message_is_refused_before_it_is_sent) {
  run(2, [](Communicator& comm) {
    const int other = 1 - comm.rank();
    const auto refusal = [&](const at::Tensor& tensor, int rank) {
      const std::string sent = error_of<CommError>([&] { comm.start_send(tensor, rank); });
      EXPECT_EQ(sent, error_of<CommError>([&] { comm.start_receive(tensor, rank); }));
      return sent;
    };
    TANREN_EXPECT_CONTAINS(refusal(at::zeros({2}), comm.rank()), "a rank sends itself none");
    TANREN_EXPECT_CONTAINS(refusal(at::zeros({2}), 2), "there are 2 ranks");
    TANREN_EXPECT_CONTAINS(refusal(at::zeros({2, 3}).t(), other), "not dense and contiguous");
    TANREN_EXPECT_CONTAINS(refusal(at::Tensor(), other), "undefined");
    comm.sum(at::zeros({1}));  // a rank that leaves at once breaks connections being made
  });
}

TEST_P(Wires, a_cancel_in_one_part_ends_the_waits_of_the_others) {
  std::vector<std::string> errors(4);
  run(4, [&](Communicator& comm) {
    const auto part = comm.split(comm.rank() / 2);
    if (comm.rank() == 3) {
      comm.sum(at::zeros({1}));  // all have their part
      return part->cancel("it has no memory");
    }
    errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
      comm.sum(at::zeros({1}));  // the cancel may come while this rank still waits here
      if (comm.rank() == 0) part->start_receive(at::zeros({2}), 1, kGradient)->wait();
      if (comm.rank() == 1) comm.sum(at::zeros({2}));
      if (comm.rank() == 2) part->sum(at::zeros({2}));
    });
    EXPECT_THROW(comm.check(), CommError);
    EXPECT_THROW(part->check(), CommError);
  });
  const std::string why = "[comm] rank 3: it has no memory";
  TANREN_EXPECT_CONTAINS(errors[0], why);  // and what it waited for, if it waited already
  EXPECT_EQ(errors[1], why);
  EXPECT_EQ(errors[2], why);
}

TEST_P(Wires, a_rank_that_does_not_come_to_a_sum_of_a_part_is_named_as_of_the_whole) {
  std::vector<std::string> errors(4);
  run_impatient(4, [&](Communicator& comm) {
    const auto part = comm.split(comm.rank() / 2);
    // Ranks 0 and 1 have also started no operation, but their part is another one.
    std::string& error = errors[static_cast<size_t>(comm.rank())];
    if (comm.rank() != 2) {
      error = end_of_run(comm);
    } else {
      error = error_of<CommError>([&] { part->sum(at::zeros({2})); });
    }
  });
  for (const auto& error : errors) {
    TANREN_EXPECT_CONTAINS(
        error, over_gloo() ? "[comm] rank 3 did not come to a sum over gloo and 2 ranks"
                           : "a sum of 2 Float elements: rank 3 did not come within 2 s");
  }
}

// Stands for an object that a rank destroys after its part and that takes long, such as a model.
struct SlowEnd {
  ~SlowEnd() { std::this_thread::sleep_for(3s); }
};

// The connections of a part that is destroyed first would break before the cause is known.
TEST_P(Wires, an_error_in_the_work_of_a_part_reaches_the_others_before_the_part_is_destroyed) {
  std::string error;
  const std::string thrown = error_of<std::runtime_error>([&] {
    run(2, [&](Communicator& comm) {
      const SlowEnd slow;
      with_parts(comm, 0, [&](const std::shared_ptr<Communicator>& part) {
        part->sum(at::zeros({1}));
        if (comm.rank() == 1) throw std::runtime_error("[data] row 7 has 3 columns");
        error = error_of<CommError>([&] { part->sum(at::zeros({2})); });
      });
    });
  });
  EXPECT_EQ(thrown, "[data] row 7 has 3 columns");
  EXPECT_EQ(error, "[comm] rank 1: [data] row 7 has 3 columns");
}

TEST_P(Wires, a_message_goes_there_and_comes_back) {
  run(2, [](Communicator& comm) {
    at::Tensor mine = at::zeros({5}, at::kDouble);
    const int other = 1 - comm.rank();
    for (int round = 0; round < 50; ++round) {
      if (comm.rank() == 0) comm.start_send(mine, other)->wait();
      comm.start_receive(mine, other)->wait();
      mine += 1;
      if (comm.rank() == 1) comm.start_send(mine, other)->wait();
    }
    EXPECT_TRUE(at::equal(mine, at::full({5}, comm.rank() == 0 ? 100.0 : 99.0, at::kDouble)));
  });
}

TEST_P(Wires, receives_posted_ahead_are_filled_in_the_order_of_the_sends) {
  run(2, [](Communicator& comm) {
    constexpr int kMessages = 8;
    std::vector<at::Tensor> tensors;
    std::vector<Communicator::Work> works;
    for (int i = 0; i < kMessages; ++i) {
      tensors.push_back(at::full({1000}, comm.rank() == 0 ? i : -1, at::kLong));
      works.push_back(comm.rank() == 0 ? comm.start_send(tensors.back(), 1)
                                       : comm.start_receive(tensors.back(), 0));
    }
    for (int i = kMessages - 1; i >= 0; --i) works[static_cast<size_t>(i)]->wait();
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(at::equal(tensors[static_cast<size_t>(i)], at::full({1000}, i, at::kLong))) << i;
    }
  });
}

TEST_P(Wires, sends_in_both_directions_at_once_do_not_wait_for_each_other) {
  run(2, [](Communicator& comm) {
    const int other = 1 - comm.rank();
    for (int round = 0; round < 3; ++round) {
      const at::Tensor mine = at::full({1'000'000}, comm.rank() + round, at::kFloat);
      const at::Tensor theirs = at::empty_like(mine);
      const auto send = comm.start_send(mine, other);
      const auto receive = comm.start_receive(theirs, other);
      send->wait();
      receive->wait_on_host();
      receive->wait();  // a second wait is no second message
      EXPECT_TRUE(at::equal(theirs, at::full({1'000'000}, other + round, at::kFloat)));
    }
  });
}

TEST_P(Wires, every_dtype_and_shape_arrives_and_an_empty_one_too) {
  run(2, [](Communicator& comm) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                            at::kShort, at::kBool, at::kByte}) {
      for (const std::vector<int64_t>& shape :
           {std::vector<int64_t>{}, std::vector<int64_t>{0, 3}, std::vector<int64_t>{2, 3, 4}}) {
        int64_t count = 1;
        for (const int64_t size : shape) count *= size;
        const at::Tensor sent = (at::arange(count) % 2).view(shape).to(type);
        if (comm.rank() == 0) {
          comm.start_send(sent, 1)->wait();
        } else {
          const at::Tensor got = at::full(shape, 5, at::kFloat).to(type);
          comm.start_receive(got, 0)->wait();
          EXPECT_TRUE(at::equal(got, sent)) << type;
        }
      }
    }
  });
}

TEST_P(Wires, a_leaf_that_requires_a_gradient_is_received_as_it_is) {
  run(2, [](Communicator& comm) {
    at::Tensor leaf = at::full({3}, comm.rank() == 0 ? 2.0 : 0.0).requires_grad_(true);
    if (comm.rank() == 0) comm.start_send(leaf, 1)->wait();
    if (comm.rank() == 1) comm.start_receive(leaf, 0)->wait();
    EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad());
    EXPECT_EQ(leaf.detach().sum().item<double>(), 6);
  });
}

TEST_P(Wires, messages_and_sums_under_way_do_not_disturb_each_other) {
  run(3, [](Communicator& comm) {
    const int next = (comm.rank() + 1) % 3, last = (comm.rank() + 2) % 3;
    for (int round = 0; round < 5; ++round) {
      const at::Tensor got = at::zeros({700}), sum = at::full({90'000}, comm.rank() + 1.0);
      const auto receive = comm.start_receive(got, last);
      const auto summing = comm.start_sum(sum);
      const auto send = comm.start_send(at::full({700}, comm.rank() + 10.0 * round), next);
      const at::Tensor second = at::full({2}, 1.0);
      const auto summing_second = comm.start_sum(second);
      receive->wait();
      summing_second->wait();
      send->wait();
      summing->wait();
      EXPECT_TRUE(at::equal(got, at::full({700}, last + 10.0 * round)));
      EXPECT_TRUE(at::equal(sum, at::full({90'000}, 6.0)));
      EXPECT_TRUE(at::equal(second, at::full({2}, 3.0)));
    }
  });
}

TEST_P(Wires, four_ranks_are_split_into_two_by_two_and_sum_on_both_axes_while_messages_run) {
  run(4, [](Communicator& comm) {
    const int stage = comm.rank() / 2, replica = comm.rank() % 2;
    const auto pipeline = comm.split(replica);
    const auto data = comm.split(stage);
    EXPECT_EQ(pipeline->world_size(), 2);
    EXPECT_EQ(pipeline->rank(), stage);
    EXPECT_EQ(data->world_size(), 2);
    EXPECT_EQ(data->rank(), replica);
    EXPECT_EQ(pipeline->name(), comm.name());
    for (int round = 0; round < 3; ++round) {
      const at::Tensor mine = at::full({500}, comm.rank() + 10.0 * round);
      const at::Tensor theirs = at::zeros({500});
      const auto receive = pipeline->start_receive(theirs, 1 - stage);
      const auto send = pipeline->start_send(mine, 1 - stage);
      const at::Tensor of_data = at::full({40'000}, comm.rank() + 1.0);
      const at::Tensor of_pipeline = of_data.clone(), of_all = of_data.clone();
      const auto data_sum = data->start_sum(of_data);
      const auto pipeline_sum = pipeline->start_sum(of_pipeline);
      comm.sum(of_all);
      pipeline_sum->wait();
      data_sum->wait();
      receive->wait();
      send->wait();
      EXPECT_TRUE(at::equal(theirs, at::full({500}, (1 - stage) * 2 + replica + 10.0 * round)));
      EXPECT_TRUE(at::equal(of_data, at::full({40'000}, 4.0 * stage + 3)));
      EXPECT_TRUE(at::equal(of_pipeline, at::full({40'000}, 2.0 * replica + 4)));
      EXPECT_TRUE(at::equal(of_all, at::full({40'000}, 10.0)));
    }
    comm.sum(at::zeros({1}));  // no rank breaks its parts' connections before the others are done
  });
}

TEST_P(Wires, parts_keep_the_order_of_the_ranks_and_may_be_split_again) {
  run(3, [](Communicator& comm) {
    // Colours in any order; a part of one rank.
    const auto part = comm.split(comm.rank() == 1 ? -7 : 5);
    EXPECT_EQ(part->world_size(), comm.rank() == 1 ? 1 : 2);
    EXPECT_EQ(part->rank(), comm.rank() == 2 ? 1 : 0);
    // Then rank 1 has been in fewer parts than the others.
    if (comm.rank() != 1) {
      EXPECT_EQ(part->split(part->rank())->world_size(), 1);
    }
    const auto pair = comm.split(comm.rank() == 0 ? 0 : 1);
    at::Tensor mine = at::full({2}, comm.rank() + 1.0);
    pair->sum(mine);
    EXPECT_EQ(mine[0].item<double>(), comm.rank() == 0 ? 1 : 5);
    comm.sum(at::zeros({1}));
  });
}

TEST(ThreadWires, are_counted_as_messages_with_their_bytes) {
  const ThreadGroup group(2);
  on_ranks(group, 2, [](Communicator& comm) {
    for (int i = 0; i < 3; ++i) {
      const at::Tensor row = at::zeros({4});
      (comm.rank() == 0 ? comm.start_send(row, 1) : comm.start_receive(row, 0))->wait();
    }
  });
  EXPECT_EQ(group.num_operations(), 3);
  EXPECT_EQ(group.num_bytes(), 3 * 16);
}

TEST(ThreadWires, share_the_imitated_link_with_the_sums_of_all_parts) {
  const ThreadGroup group(2, {.bytes_per_second = 400'000});
  const auto start = WireClock::now();
  on_ranks(group, 2, [](Communicator& comm) {
    const auto part = comm.split(0);
    const at::Tensor row = at::zeros({1000}), sum = at::zeros({1000});
    const auto message = comm.rank() == 0 ? comm.start_send(row, 1) : comm.start_receive(row, 0);
    const auto summing = part->start_sum(sum);
    message->wait();
    summing->wait();
  });
  EXPECT_GE(WireClock::now() - start, 20ms);
}

TEST(ThreadWires, keep_neither_a_graph_nor_a_tensor_that_has_arrived) {
  const ThreadGroup group(2);
  const std::vector<at::Tensor> tensors = {at::ones({4}).requires_grad_(true) * 2, at::zeros({4})};
  std::vector<Communicator::Work> works(2);
  on_ranks(group, 2, [&](Communicator& comm) {
    const auto own = static_cast<size_t>(comm.rank());
    works[own] = own == 0 ? comm.start_send(tensors[0], 1) : comm.start_receive(tensors[1], 0);
    EXPECT_EQ(tensors[own].use_count(), 1u);
    works[own]->wait();
  });
  EXPECT_TRUE(at::equal(tensors[1], at::full({4}, 2.0)));
  for (const at::Tensor& tensor : tensors) EXPECT_EQ(tensor.storage().use_count(), 1u);
}

TEST(Single, has_nobody_to_send_to_and_is_its_own_part) {
  const auto comm = single_communicator();
  TANREN_EXPECT_CONTAINS(error_of<CommError>([&] { comm->start_send(at::zeros({1}), 0); }),
                         "a rank sends itself none");
  TANREN_EXPECT_CONTAINS(error_of<CommError>([&] { comm->start_receive(at::zeros({1}), 1); }),
                         "there are 1 ranks");
  EXPECT_EQ(comm->split(3)->world_size(), 1);
}

// A user's communicator from before there were messages.
class WithoutWires final : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  std::string_view name() const override { return "mine"; }
  Work start_sum(const at::Tensor& /*tensor*/) override { return nullptr; }
  Work start_sum_scatter(const at::Tensor& /*part*/, const at::Tensor& /*whole*/) override {
    return nullptr;
  }
  Work start_gather(const at::Tensor& /*whole*/, const at::Tensor& /*part*/) override {
    return nullptr;
  }
  Work start_broadcast(const at::Tensor& /*tensor*/, int /*root*/) override { return nullptr; }
  void cancel(const std::string& /*why*/) override {}
};

TEST(Communicator, without_messages_or_parts_says_so) {
  WithoutWires comm;
  TANREN_EXPECT_CONTAINS(error_of<CommError>([&] { comm.start_send(at::zeros({1}), 1); }),
                         "the engine mine has no messages between two ranks");
  TANREN_EXPECT_CONTAINS(error_of<CommError>([&] { comm.split(0); }),
                         "the engine mine has no parts");
}

}  // namespace
}  // namespace tanren
