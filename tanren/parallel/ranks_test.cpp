#include "tanren/parallel/ranks.h"

#include "tanren/base/error.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/parallel/ranks_test_util.h"

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

TEST(Ranks, another_cut_of_a_rank_comes_with_what_makes_cuts_equal) {
  testing::on_ranks(2, [](Communicator& comm) {
    const std::string message = message_of([&] {
      of(comm).check_alike({{"parallel.cut_at", comm.rank() == 1 ? "h.2" : "h.3"}});
    });
    EXPECT_NE(message.find("rank 1 has parallel.cut_at h.2, rank 0 has parallel.cut_at h.3; each "
                           "process predicts the stages by its own run.threads: give all the "
                           "same, or name parallel.cut_at"),
              std::string::npos)
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
  for (const RankAxis* axis : {&ranks.world(), &ranks.data(), &ranks.pipeline()}) {
    EXPECT_TRUE(axis->alone());
    EXPECT_TRUE(axis->is_first());
  }
  EXPECT_EQ(ranks.agree_names({"x"}), std::vector<std::string>{"x"});
  ranks.check_alike({{"a", "b"}});
}

TEST(RankAxes, that_are_numbered_in_another_order_are_refused) {
  const testing::Mesh mesh(2, 3);
  for (int rank = 0; rank < 6; ++rank) {
    const RankAxes axes = mesh.axes(rank);
    EXPECT_EQ(message_of([&] { const Ranks ranks(axes, {}); }), "") << "rank " << rank;
    if (rank != 1) continue;
    const RankAxes turned{.world = axes.world, .data = axes.pipeline, .pipeline = axes.data};
    EXPECT_EQ(message_of([&] { const Ranks ranks(turned, {}); }),
              "[parallel] rank 1 of 6 was given as replica 0 of 2 in stage 1 of 3; number ranks as "
              "stage × replicas + replica");
    const RankAxes small{.world = axes.data, .data = axes.data, .pipeline = axes.pipeline};
    EXPECT_EQ(message_of([&] { const Ranks ranks(small, {}); }),
              "[parallel] rank 1 of 3 was given as replica 1 of 3 in stage 0 of 2; number ranks as "
              "stage × replicas + replica");
  }
}

TEST(RankAxes, of_a_world_without_stages_are_its_replicas) {
  testing::on_ranks(3, [](Communicator& comm) {
    const Ranks ranks = of(comm);
    EXPECT_EQ(ranks.data().rank(), comm.rank());
    EXPECT_EQ(ranks.data().size(), 3);
    EXPECT_EQ(ranks.data().is_first(), comm.rank() == 0);
    EXPECT_TRUE(ranks.pipeline().alone());
  });
}

TEST(RankAxes, names_and_facts_are_compared_over_all_stages) {
  testing::Mesh(2, 2).run([](const RankAxes& axes) {
    const Ranks ranks(axes, {});
    const bool is_last = axes.world.rank() == 3;
    const auto names =
        ranks.agree_names(is_last ? std::vector<std::string>{"loss"} : std::vector<std::string>{});
    EXPECT_EQ(names, std::vector<std::string>{"loss"});
    const std::string message = message_of([&] {
      ranks.check_alike({{"seed", is_last ? "2" : "1"}});
    });
    EXPECT_EQ(message.rfind("[parallel] rank 3 has seed 2, rank 0 has seed 1", 0), 0U) << message;
  });
}

TEST(RankAxes, keep_what_a_stage_holds_among_its_replicas) {
  testing::Mesh(2, 2).run([](const RankAxes& axes) {
    const Ranks ranks(axes, {});
    const double own = static_cast<double>(axes.world.rank());
    const int64_t stage = axes.pipeline.rank();
    const at::Tensor last = at::full({2}, own), mean = at::full({2}, own, at::kDouble);
    ranks.take_from({last}, 1);
    EXPECT_TRUE(at::equal(last, at::full({2}, stage == 0 ? 1.0 : 3.0)));
    ranks.take_mean({mean}, {1, 3});
    EXPECT_TRUE(at::equal(mean, at::full({2}, stage == 0 ? 0.75 : 2.75, at::kDouble)));
    TensorMap tensors;
    tensors.set("a", at::full({3}, stage));
    ranks.check_equal(tensors, "at step 3");
    if (axes.world.rank() == 3) at::Tensor(tensors.at("a")).add_(1);
    const std::string message = message_of([&] { ranks.check_equal(tensors, "at step 4"); });
    const std::string start = "[parallel] at step 4: a of rank 3 is no longer rank 2's";
    EXPECT_EQ(message.substr(0, start.size()), stage == 0 ? "" : start);
  });
}

TEST(RankAxes, batch_norm_sees_the_replicas_of_its_stage) {
  ParallelPlan plan;
  plan.buffers = RankBuffers::synchronised;
  testing::Mesh(2, 2).run([&](const RankAxes& axes) {
    const Ranks ranks(axes, plan);
    const double first = axes.pipeline.rank() == 0 ? 0 : 2;
    const at::Tensor rows = (*ranks.across_ranks())(at::full({1}, axes.world.rank(), at::kDouble));
    EXPECT_TRUE(at::equal(rows, at::tensor({first, first + 1}, at::kDouble).view({2, 1})));
  });
  testing::Mesh(2, 1).run(
      [&](const RankAxes& axes) { EXPECT_EQ(Ranks(axes, plan).across_ranks(), nullptr); });
}

}  // namespace
}  // namespace tanren
