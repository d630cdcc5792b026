#include "tanren/parallel/ranks.h"

#include "tanren/base/error.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

namespace tanren {
namespace {

// The Ranks of one rank of a group that lives as long as the test's threads.
Ranks of(Communicator& communicator) {
  return {std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}), ParallelPlan()};
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Ranks, a_fact_that_differs_is_named_on_every_rank) {
  testing::on_ranks(3, [](Communicator& comm) {
    const Ranks ranks = of(comm);
    Facts facts{{"config", "equal"}, {"parameter mlp.0.weight", "[4, 3] Float"}};
    ranks.check_alike(facts);
    if (comm.rank() == 2) facts[1].second = "[4, 4] Float";
    const std::string message = message_of([&] { ranks.check_alike(facts); });
    EXPECT_EQ(message.rfind("[parallel] rank 2 has parameter mlp.0.weight [4, 4] Float, rank 0 has "
                            "parameter mlp.0.weight [4, 3] Float",
                            0),
              0U)
        << message;
  });
}

TEST(Ranks, a_fact_that_is_missing_is_named) {
  testing::on_ranks(2, [](Communicator& comm) {
    Facts facts{{"a", "1"}, {"b", "2"}};
    if (comm.rank() == 1) facts.pop_back();
    const std::string message = message_of([&] { of(comm).check_alike(facts); });
    EXPECT_NE(message.find("rank 1 has nothing more, rank 0 has b 2"), std::string::npos)
        << message;
  });
}

TEST(Ranks, a_fact_that_a_rank_has_not_set_reads_none) {
  testing::on_ranks(2, [](Communicator& comm) {
    const std::string message = message_of([&] {
      of(comm).check_alike({{"run.stop_after", comm.rank() == 1 ? "2" : ""}});
    });
    EXPECT_NE(message.find("rank 1 has run.stop_after 2, rank 0 has run.stop_after none; start"),
              std::string::npos)
        << message;
  });
}

TEST(Ranks, names_are_those_of_any_rank_in_the_same_order_everywhere) {
  testing::on_ranks(3, [](Communicator& comm) {
    std::vector<std::string> mine;
    if (comm.rank() == 1) mine = {"tokens", "a:1,b"};
    if (comm.rank() == 2) mine = {"pixels", "tokens"};
    const std::vector<std::string> expected{"tokens", "a:1,b", "pixels"};
    EXPECT_EQ(of(comm).agree_names(mine), expected);
  });
}

TEST(Ranks, tensors_of_every_dtype_and_layout_become_those_of_one_rank) {
  testing::on_ranks(3, [](Communicator& comm) {
    const double mine = comm.rank();
    const auto lasting = at::MemoryFormat::ChannelsLast;
    std::vector<at::Tensor> tensors{
        at::full({2, 3}, mine), at::full({4}, mine, at::kDouble),
        at::full({}, comm.rank(), at::kLong),
        at::arange(24, at::kFloat).view({1, 2, 3, 4}).add(mine).contiguous(lasting),
        at::full({2}, comm.rank() == 0, at::kBool)};
    of(comm).take_from(tensors, 0);
    EXPECT_TRUE(at::equal(tensors[0], at::zeros({2, 3})));
    EXPECT_EQ(tensors[1].sum().item<double>(), 0);
    EXPECT_EQ(tensors[2].item<int64_t>(), 0);
    EXPECT_TRUE(at::equal(tensors[3], at::arange(24, at::kFloat).view({1, 2, 3, 4})));
    EXPECT_TRUE(tensors[3].is_contiguous(lasting));
    EXPECT_TRUE(tensors[4].all().item<bool>());
    const at::Tensor other = at::full({3}, comm.rank());
    of(comm).take_from({other}, 2);
    EXPECT_EQ(other.sum().item<int64_t>(), 6);
  });
}

TEST(Ranks, a_mean_weighs_ranks_and_those_without_weight_have_no_say) {
  testing::on_ranks(3, [](Communicator& comm) {
    const double endless = std::numeric_limits<double>::infinity();
    const std::vector<at::Tensor> tensors{
        at::full({2}, comm.rank() == 1 ? endless : 4.0 * comm.rank()),
        at::full({2, 2}, comm.rank() == 1 ? endless : 8.0 + comm.rank(), at::kDouble)};
    of(comm).take_mean(tensors, {3, 0, 1});
    EXPECT_TRUE(at::equal(tensors[0], at::full({2}, 2.0)));
    EXPECT_TRUE(at::equal(tensors[1], at::full({2, 2}, 8.5, at::kDouble)));
    const at::Tensor third = at::full({1}, 1.0F / 3);  // equal values stay equal to the last bit
    of(comm).take_mean({third}, {3, 4, 4});
    EXPECT_EQ(third.item<float>(), 1.0F / 3);
  });
}

TEST(Ranks, one_bit_of_difference_names_rank_and_tensor) {
  testing::on_ranks(3, [](Communicator& comm) {
    TensorMap tensors;
    tensors.set("a", at::ones({5}));
    tensors.set("b", at::ones({2, 2, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast));
    of(comm).check_equal(tensors, "at step 3");
    if (comm.rank() == 1) {
      at::Tensor b = tensors.at("b");
      b.view(at::kInt)[1][0][1][0] += 1;
    }
    const std::string message = message_of([&] { of(comm).check_equal(tensors, "at step 4"); });
    EXPECT_EQ(message.rfind("[parallel] at step 4: b of rank 1 is no longer rank 0's", 0), 0U)
        << message;
  });
}

TEST(Ranks, of_one_rank_agrees_with_itself) {
  const Ranks ranks;
  EXPECT_TRUE(ranks.alone());
  EXPECT_EQ(ranks.agree_names({"x"}), std::vector<std::string>{"x"});
  ranks.check_alike({{"a", "b"}});
}

}  // namespace
}  // namespace tanren
