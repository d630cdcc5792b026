#include "tanren/plan/pipeline_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace tanren {
namespace {

using Names = std::vector<std::string>;

// Blocks "a", "b", … with this work, and nothing else.
ModelBlocks blocks_of_work(const std::vector<double>& work) {
  ModelBlocks model;
  for (const double amount : work) {
    BlockCost block;
    block.name = std::string(1, static_cast<char>('a' + model.blocks.size()));
    block.forward = amount;
    model.blocks.push_back(block);
  }
  return model;
}

CutOptions in_stages(int64_t stages) {
  CutOptions options;
  options.stages = stages;
  return options;
}

TEST(CheckCut, refuses_a_model_of_one_block_or_of_none) {
  const std::string problem =
      "[plan] parallel.pipeline is 2, and the model is one block, which stages cannot share; call "
      "run_block for each of its parts, or drop parallel.pipeline";
  EXPECT_EQ(check_cut(blocks_of_work({1}), 2, {}), problem);
  EXPECT_EQ(check_cut({}, 2, {}), problem);
  EXPECT_EQ(check_cut(blocks_of_work({1}), 1, {}), "");
}

TEST(CheckCut, refuses_more_stages_than_the_blocks_and_their_possible_cuts_make) {
  ModelBlocks model = blocks_of_work({1, 1, 1, 1});
  EXPECT_EQ(check_cut(model, 4, {}), "");
  EXPECT_EQ(check_cut(model, 5, {}),
            "[plan] parallel.pipeline is 5, and the model has 4 blocks; set it to 4 or less");
  model.blocks[1].obstacle = "block 'd' also needs a tensor of 'a'";
  EXPECT_EQ(check_cut(model, 4, {}),
            "[plan] parallel.pipeline is 4, and the model has 4 blocks, which can be cut at 2 "
            "places; set it to 3 or less");
  for (BlockCost& block : model.blocks) block.obstacle = "x";
  EXPECT_EQ(check_cut(model, 2, {}),
            "[plan] parallel.pipeline is 2, and the model cannot be cut: not before 'b', because "
            "x; drop parallel.pipeline");
}

TEST(CheckCut, tells_the_nearest_block_for_a_name_of_none) {
  ModelBlocks model = blocks_of_work({1, 1, 1});
  const Names names = {"conv1", "layer1.0", "layer2.0"};
  for (size_t i = 0; i < names.size(); ++i) model.blocks[i].name = names[i];
  EXPECT_EQ(check_cut(model, 2, {"layer2.1"}),
            "[plan] parallel.cut_at: the model has no block 'layer2.1'; did you mean 'layer2.0'?");
  EXPECT_EQ(check_cut(model, 2, {"transformer.h.6"}),
            "[plan] parallel.cut_at: the model has no block 'transformer.h.6'; its blocks are "
            "conv1, layer1.0, layer2.0");
}

TEST(CheckCut, refuses_the_first_block_a_name_given_twice_and_another_order) {
  const ModelBlocks model = blocks_of_work({1, 1, 1, 1});
  EXPECT_EQ(check_cut(model, 2, {"a"}),
            "[plan] parallel.cut_at: 'a' is the first block, and a stage before it would have "
            "none; cut before 'b'");
  EXPECT_EQ(check_cut(model, 3, {"c", "c"}),
            "[plan] parallel.cut_at names 'c' twice; name each stage once");
  EXPECT_EQ(check_cut(model, 3, {"d", "b"}),
            "[plan] parallel.cut_at: 'b' comes before 'd' in the model; name the blocks in the "
            "model's order");
}

TEST(CheckCut, refuses_another_number_of_names_than_there_are_cuts) {
  const ModelBlocks model = blocks_of_work({1, 1, 1, 1});
  EXPECT_EQ(check_cut(model, 3, {"c"}),
            "[plan] parallel.cut_at names the first blocks of 1 later stages, and "
            "parallel.pipeline = 3 has 2; set parallel.pipeline = 2, or let the plan cut (--set "
            "'parallel.cut_at=[]')");
  EXPECT_NE(check_cut(model, 1, {"c"}), "");
  EXPECT_EQ(check_cut(model, 3, {"b", "d"}), "");
  EXPECT_EQ(cut_named(model, {"b", "d"}), (PipelineCut{1, 3}));
}

TEST(CheckCut, names_the_cuts_beside_one_that_more_than_one_tensor_crosses) {
  ModelBlocks model = blocks_of_work({1, 1, 1, 1, 1, 1});
  for (const size_t i : {1U, 2U}) model.blocks[i].obstacle = "block 'd' also needs a tensor of 'b'";
  EXPECT_EQ(check_cut(model, 2, {"c"}),
            "[plan] parallel.cut_at: no cut before 'c' is possible, because block 'd' also needs a "
            "tensor of 'b'; cut before 'b' or 'e'");
  EXPECT_EQ(check_cut(model, 2, {"b"}), "");
  EXPECT_EQ(check_cut(model, 2, {"e"}), "");
  for (const size_t i : {3U, 4U}) model.blocks[i].obstacle = "x";
  EXPECT_EQ(check_cut(model, 2, {"d"}),
            "[plan] parallel.cut_at: no cut before 'd' is possible, because block 'd' also needs a "
            "tensor of 'b'; cut before 'b'");
}

TEST(CheckCut, refuses_a_block_that_runs_twice) {
  ModelBlocks model = blocks_of_work({1, 1, 1, 1});
  model.blocks[3].name = "c";
  EXPECT_EQ(check_cut(model, 2, {"c"}),
            "[plan] parallel.cut_at: no cut before 'c' is possible, because it runs 2 times in a "
            "forward; cut before 'b'");
  EXPECT_EQ(cut_balanced(model, in_stages(2)), (PipelineCut{1}));
}

TEST(CutBalanced, makes_the_slowest_stage_as_fast_as_can_be) {
  EXPECT_EQ(cut_balanced(blocks_of_work({3, 1, 1, 1}), in_stages(2)), (PipelineCut{1}));
  EXPECT_EQ(cut_balanced(blocks_of_work({1, 1, 1, 3}), in_stages(2)), (PipelineCut{3}));
  EXPECT_EQ(cut_balanced(blocks_of_work({1, 2, 3, 4, 5, 6}), in_stages(3)), (PipelineCut{3, 5}));
  EXPECT_EQ(cut_balanced(blocks_of_work({1, 2, 3}), in_stages(1)), PipelineCut{});
}

TEST(CutBalanced, takes_the_earliest_of_equal_cuts) {
  EXPECT_EQ(cut_balanced(blocks_of_work({1, 4, 1}), in_stages(2)), (PipelineCut{1}));
  EXPECT_EQ(cut_balanced(blocks_of_work({1, 1, 1, 5}), in_stages(3)), (PipelineCut{1, 3}));
}

TEST(CutBalanced, has_no_value_where_no_cut_is_possible) {
  ModelBlocks model = blocks_of_work({1, 1});
  EXPECT_EQ(cut_balanced(model, in_stages(3)), std::nullopt);
  EXPECT_EQ(cut_balanced(model, in_stages(0)), std::nullopt);
  EXPECT_EQ(cut_balanced({}, in_stages(1)), std::nullopt);
  model.blocks[0].obstacle = "x";
  EXPECT_EQ(cut_balanced(model, in_stages(2)), std::nullopt);
}

// Three blocks of one work. The first and the last share a weight, as tied embeddings do.
ModelBlocks tied_model() {
  ModelBlocks model = blocks_of_work({1, 1, 1});
  model.weights = {{"table", 100, 300}, {"middle", 10, 30}};
  model.blocks[0].weights = {0};
  model.blocks[1].weights = {1};
  model.blocks[2].weights = {0};
  model.blocks[0].kept_bytes = 1;
  model.blocks[1].kept_bytes = 2;
  model.blocks[2].kept_bytes = 4;
  model.blocks[0].output_bytes = 1000;
  model.blocks[1].output_bytes = 2000;
  return model;
}

TEST(StageCosts, hold_each_weight_once_and_the_activations_of_all_microbatches_in_flight) {
  const CutOptions options{.stages = 2, .samples = 5, .in_flight = {2, 1}};
  const auto costs = stage_costs(tied_model(), {1}, options);
  ASSERT_EQ(costs.size(), 2U);
  EXPECT_EQ(costs[0].end, 1U);
  EXPECT_EQ(costs[0].work(), 1);
  EXPECT_EQ(costs[0].bytes, 400 + 2 * 5 * 1);
  EXPECT_EQ(costs[1].begin, 1U);
  EXPECT_EQ(costs[1].work(), 2);
  EXPECT_EQ(costs[1].bytes, 400 + 40 + 5 * (2 + 4 + 1000));
  // In one stage the shared weight counts once.
  EXPECT_EQ(stage_costs(tied_model(), {}, {})[0].bytes, 400 + 40 + 1 + 2 + 4);
  // The second microbatch of a window of 7 samples is short.
  CutOptions is_short = options;
  is_short.most_samples = 7;
  EXPECT_EQ(stage_costs(tied_model(), {1}, is_short)[0].bytes, 400 + 7 * 1);
  EXPECT_EQ(stage_costs(tied_model(), {1}, is_short)[1].bytes, costs[1].bytes);
}

TEST(StageCosts, count_what_code_before_a_block_uses_and_keeps_in_all_later_stages) {
  ModelBlocks model = tied_model();
  model.blocks[1].weights_before = {1};
  model.blocks[1].kept_before = 2;
  CutOptions options{.stages = 3, .samples = 5, .in_flight = {}};
  const auto costs = stage_costs(model, {1, 2}, options);
  EXPECT_EQ(costs[0].bytes, 400 + 5 * 1);
  EXPECT_EQ(costs[1].bytes, 40 + 5 * (2 + 1000));
  EXPECT_EQ(costs[2].bytes, 400 + 40 + 5 * (4 + 2 + 2000));
  options.limit_bytes = costs[2].bytes;
  EXPECT_EQ(cut_balanced(model, options), (PipelineCut{1, 2}));
  --options.limit_bytes;
  EXPECT_EQ(cut_balanced(model, options), std::nullopt);
  // In one stage both count once.
  EXPECT_EQ(stage_costs(model, {}, {})[0].bytes, 400 + 40 + 1 + 2 + 4);
}

TEST(CutBalanced, keeps_every_stage_within_the_limit) {
  ModelBlocks model = blocks_of_work({1, 1, 1, 1});
  model.weights = {{"a", 10, 0}, {"b", 20, 0}, {"c", 1, 0}, {"d", 1, 0}};
  for (size_t i = 0; i < 4; ++i) model.blocks[i].weights = {i};
  CutOptions options{.stages = 2, .samples = 1, .in_flight = {}, .limit_bytes = 30};
  EXPECT_EQ(cut_balanced(model, options), (PipelineCut{2}));
  options.limit_bytes = 29;
  EXPECT_EQ(cut_balanced(model, options), (PipelineCut{1}));
  options.limit_bytes = 21;
  EXPECT_EQ(cut_balanced(model, options), std::nullopt);
  const auto smallest = cut_smallest(model, options);
  EXPECT_EQ(smallest, (PipelineCut{1}));
  EXPECT_EQ(stage_costs(model, *smallest, options)[1].bytes, 22);
}

// All cuts into these stages, the earliest first.
void append_cuts(size_t num_blocks, size_t num_cuts, PipelineCut& begun,
                 std::vector<PipelineCut>& all) {
  if (begun.size() == num_cuts) {
    all.push_back(begun);
    return;
  }
  for (size_t next = begun.empty() ? 1 : begun.back() + 1; next < num_blocks; ++next) {
    begun.push_back(next);
    append_cuts(num_blocks, num_cuts, begun, all);
    begun.pop_back();
  }
}

// By trying all of them.
std::optional<PipelineCut> best_of_all(const ModelBlocks& model, const CutOptions& options) {
  std::vector<PipelineCut> all;
  PipelineCut begun;
  append_cuts(model.blocks.size(), static_cast<size_t>(options.stages) - 1, begun, all);
  std::optional<PipelineCut> best;
  double least = std::numeric_limits<double>::infinity();
  for (const PipelineCut& cut : all) {
    bool possible = std::all_of(cut.begin(), cut.end(),
                                [&](size_t place) { return cut_obstacle(model, place).empty(); });
    double slowest = 0;
    size_t place = 0;
    for (const StageCost& stage : stage_costs(model, cut, options)) {
      possible = possible && (options.limit_bytes == 0 || stage.bytes <= options.limit_bytes);
      for (const StageSpan& span : options.too_large) {
        const bool has_all = stage.begin <= span.begin && span.end <= stage.end;
        possible = possible && !(has_all && span.stage == place);
      }
      ++place;
      slowest = std::max(slowest, stage.work());
    }
    const auto& out = options.ruled_out;
    possible = possible && std::find(out.begin(), out.end(), cut) == out.end();
    if (!possible || slowest >= least) continue;
    least = slowest;
    best = cut;
  }
  return best;
}

TEST(CutBalanced, leaves_out_stages_with_all_blocks_of_one_that_is_too_large) {
  ModelBlocks model;
  for (const char* name : {"a", "b", "c", "d"})
    model.blocks.push_back({.name = name, .forward = 1});
  CutOptions options = in_stages(2);
  EXPECT_EQ(cut_balanced(model, options), (PipelineCut{2}));
  options.too_large = {{0, 0, 2}};
  EXPECT_EQ(cut_balanced(model, options), (PipelineCut{1}));
  options.too_large = {{1, 2, 4}};
  EXPECT_EQ(cut_balanced(model, options), (PipelineCut{3}));
  options.too_large.push_back({0, 0, 3});
  EXPECT_EQ(cut_balanced(model, options), std::nullopt);
}

TEST(CutBalanced, is_the_best_of_all_cuts_of_random_models) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t bound) { return static_cast<int64_t>(random() % bound); };
  int64_t found = 0, without = 0, next = 0, without_next = 0;
  for (int64_t trial = 0; trial < 2000; ++trial) {
    ModelBlocks model;
    const auto num_blocks = static_cast<size_t>(1 + below(8));
    for (int64_t i = 0; i < 4; ++i) model.weights.push_back({"w", below(50), below(50)});
    for (size_t i = 0; i < num_blocks; ++i) {
      BlockCost block;
      block.name = std::string(1, static_cast<char>('a' + i));
      block.forward = static_cast<double>(below(3));
      block.backward = static_cast<double>(below(3));
      block.kept_bytes = below(10);
      block.output_bytes = below(10);
      if (below(5) == 0) block.obstacle = "x";
      for (size_t weight = 0; weight < 4; ++weight) {
        if (below(3) == 0) block.weights.push_back(weight);
      }
      model.blocks.push_back(block);
    }
    CutOptions options = in_stages(1 + below(static_cast<uint32_t>(num_blocks)));
    options.samples = 1 + below(3);
    for (int64_t stage = 0; stage < options.stages; ++stage) {
      options.in_flight.push_back(options.stages - stage);
    }
    if (below(2) == 0) options.limit_bytes = 100 + below(300);
    if (below(2) == 0) {
      const auto begin = static_cast<size_t>(below(static_cast<uint32_t>(num_blocks)));
      const auto stage = static_cast<size_t>(below(static_cast<uint32_t>(options.stages)));
      options.too_large.push_back({stage, begin, begin + 1});
    }
    auto expected = best_of_all(model, options);
    EXPECT_EQ(cut_balanced(model, options), expected) << "trial " << trial;
    ++(expected ? found : without);
    for (int times = 0; times < 5 && expected; ++times) {  // the next best ones
      options.ruled_out.push_back(*expected);
      expected = best_of_all(model, options);
      EXPECT_EQ(cut_balanced(model, options), expected) << "trial " << trial;
      ++(expected ? next : without_next);
    }
  }
  EXPECT_GT(found, 100);
  EXPECT_GT(without, 100);
  EXPECT_GT(next, 100);
  EXPECT_GT(without_next, 100);
}

}  // namespace
}  // namespace tanren
