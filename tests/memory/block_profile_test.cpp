// What a dry forward tells of a model's blocks: order, work, bytes, weights, and where it can be
// cut into stages.
#include "tanren/forecast/block_profile.h"

#include "tests/support/block_config.h"

#include "tanren/blocks/block.h"
#include "tanren/data/collated.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/layer_table.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <ostream>

namespace tanren::testing {
namespace {

using Words = std::vector<std::string>;

constexpr int64_t kProfiled = 4;  // samples

RunConfig profile_config(const std::string& kind, const std::string& mode) {
  RunConfig config = block_config(kind, mode);
  if (kind == "resnet" || kind == "vgg") {
    config.model.size = kind == "resnet" ? "resnet18" : "vgg11";
    config.data.train.fields[0] = "inputs: float[3,32,32] in [-1, 1]";
  }
  if (kind == "resnet") config.model.dropout.reset();
  return config;
}

// A config's blocks and its layer table, on the same samples.
struct ProfiledModel {
  ModelBlocks model;
  int64_t multiply_adds = 0;  // of the layer table
};

// `own`: makes the task instead of the config.
ProfiledModel profile_of(const RunConfig& config, const std::function<Task()>& own = {},
                         const Machine& machine = {}) {
  const auto dataset = open_dataset(config.data.train, "data.train");
  const auto make_task = [&] {
    return own ? own() : build_task(config, ModelRegistry(), *dataset);
  };
  ModelProfile facts;
  {
    const DryScope without_weights;
    const Task task = make_task();
    profile_parameters(*task.module, facts);
    profile_objectives(task, facts);
    facts.couples_samples = couples_samples(*task.module);
    facts.metrics = task.metrics;
    facts.classes = task.classes;
  }
  facts.train_samples = dataset->size();
  const Plan plan = make_plan(config, machine, facts);
  std::vector<int64_t> indices(kProfiled);
  std::iota(indices.begin(), indices.end(), 0);
  const Batch batch = collated(*dataset, indices).batch;
  return {block_profile(plan, make_task, batch),
          layer_table(make_task, batch).total().multiply_adds};
}

Words names_of(const ModelBlocks& model) {
  Words names;
  for (const BlockCost& block : model.blocks) names.push_back(block.name);
  return names;
}

Words obstacles_of(const ModelBlocks& model) {
  Words obstacles;
  for (const BlockCost& block : model.blocks) obstacles.push_back(block.obstacle);
  return obstacles;
}

// The blocks that use the weight.
Words users_of(const ModelBlocks& model, size_t weight) {
  Words users;
  for (const BlockCost& block : model.blocks) {
    const auto& used = block.weights;
    if (std::count(used.begin(), used.end(), weight) > 0) users.push_back(block.name);
  }
  return users;
}

struct KnownBlocks {
  const char* kind;
  Words blocks;
  bool cuts_everywhere;  // no code between blocks computes
};
std::ostream& operator<<(std::ostream& out, const KnownBlocks& known) { return out << known.kind; }

class BlocksOf : public ::testing::TestWithParam<KnownBlocks> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds, BlocksOf,
    ::testing::Values(
        KnownBlocks{"mlp", {"hidden.0", "hidden.1", "head"}, true},
        KnownBlocks{"convnet", {"stem", "stages.0", "stages.1", "head"}, true},
        KnownBlocks{"resnet",
                    {"conv1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0",
                     "layer3.1", "layer4.0", "layer4.1", "fc"},
                    true},
        KnownBlocks{"vgg",
                    {"features.0", "features.3", "features.6", "features.8", "features.11",
                     "features.13", "features.16", "features.18", "classifier"},
                    false},
        KnownBlocks{"gpt2",
                    {"transformer.wte", "transformer.h.0", "transformer.h.1", "transformer.ln_f",
                     "lm_head"},
                    true},
        KnownBlocks{"bert",
                    {"bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1",
                     "bert.pooler", "classifier"},
                    true},
        KnownBlocks{"lstm", {"embedding", "lstm.l0", "lstm.l1", "head.dropout", "head"}, false}),
    [](const auto& info) { return std::string(info.param.kind); });

TEST_P(BlocksOf, are_in_the_order_of_the_forward_and_sum_to_the_layer_table) {
  for (const char* mode : {"fp32", "bf16"}) {
    SCOPED_TRACE(mode);
    const auto [model, multiply_adds] = profile_of(profile_config(GetParam().kind, mode));
    EXPECT_EQ(names_of(model), GetParam().blocks);
    double forward = 0, backward = 0;
    for (const BlockCost& block : model.blocks) {
      forward += block.forward;
      backward += block.backward;
      EXPECT_GT(block.output_bytes, 0) << block.name;
    }
    EXPECT_EQ(forward * kProfiled, static_cast<double>(multiply_adds));
    EXPECT_GT(multiply_adds, 0);
    EXPECT_GT(backward, forward);
    EXPECT_LE(backward, 2 * forward);
  }
}

TEST_P(BlocksOf, use_each_weight_in_one_block_unless_it_is_tied) {
  for (const char* mode : {"fp32", "bf16"}) {
    SCOPED_TRACE(mode);
    const ModelBlocks model = profile_of(profile_config(GetParam().kind, mode)).model;
    for (size_t weight = 0; weight < model.weights.size(); ++weight) {
      const std::string& name = model.weights[weight].name;
      const bool is_tied = name == "transformer.wte.weight";
      const Words users = users_of(model, weight);
      if (is_tied) {
        EXPECT_EQ(users, (Words{"transformer.wte", "lm_head"}));
      } else {
        EXPECT_EQ(users.size(), 1U) << name;
      }
    }
  }
}

TEST_P(BlocksOf, can_be_cut_everywhere_where_all_operators_are_in_blocks) {
  for (const char* mode : {"fp32", "bf16"}) {
    SCOPED_TRACE(mode);
    const ModelBlocks model = profile_of(profile_config(GetParam().kind, mode)).model;
    if (GetParam().cuts_everywhere) {
      EXPECT_EQ(obstacles_of(model), Words(model.blocks.size(), ""));
    }
    EXPECT_EQ(model.blocks.front().obstacle, "");
  }
}

TEST(BlockProfile, has_the_sizes_of_an_mlp) {
  RunConfig config = profile_config("mlp", "fp32");  // 8 × 8 values → 16 → 16 → 5
  const ModelBlocks model = profile_of(config).model;
  ASSERT_EQ(model.blocks.size(), 3U);
  const std::array<double, 3> forward = {64 * 16, 16 * 16, 16 * 5};
  const std::array<int64_t, 3> outputs = {4 * 16, 4 * 16, 4 * 5};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(model.blocks[i].forward, forward[i]);
    // The data need no gradient.
    EXPECT_EQ(model.blocks[i].backward, i == 0 ? forward[i] : 2 * forward[i]);
    EXPECT_EQ(model.blocks[i].output_bytes, outputs[i]);
  }
  ASSERT_EQ(model.weights.front().name, "hidden.0.weight");
  EXPECT_EQ(model.weights.front().bytes, 4 * 64 * 16);
  // A gradient and two moments; a counter may come with them.
  EXPECT_GE(model.weights.front().state_bytes, 3 * 4 * 64 * 16);
  EXPECT_LE(model.weights.front().state_bytes, 3 * 4 * 64 * 16 + 16);
}

TEST(BlockProfile, counts_the_casts_of_weights_and_the_narrow_outputs_under_autocast) {
  const ModelBlocks model = profile_of(profile_config("mlp", "bf16")).model;
  EXPECT_EQ(model.weights.front().bytes, (4 + 2) * 64 * 16);
  EXPECT_EQ(model.blocks.front().output_bytes, 2 * 16);
}

// A rank has a part of the state then, under other names.
TEST(BlockProfile, has_the_whole_state_where_ranks_share_it) {
  RunConfig config = profile_config("mlp", "fp32");
  const ModelBlocks whole = profile_of(config).model;
  Machine machine;
  machine.launcher = "test";
  machine.rank = machine.local_rank = 1;
  machine.world_size = machine.local_ranks = 2;
  for (const int64_t zero : {1, 2}) {
    config.parallel.zero = zero;
    const ModelBlocks model = profile_of(config, {}, machine).model;
    ASSERT_EQ(model.weights.size(), whole.weights.size());
    for (size_t i = 0; i < model.weights.size(); ++i) {
      EXPECT_GT(model.weights[i].state_bytes, 0);
      EXPECT_EQ(model.weights[i].state_bytes, whole.weights[i].state_bytes) << "zero " << zero;
    }
  }
}

// Four weights [8, 8], a buffer [8] and any forward.
struct Chain : torch::nn::Module {
  using Forward = std::function<at::Tensor(const Chain&, const at::Tensor&)>;
  explicit Chain(Forward given) : compute(std::move(given)) {
    for (const char* name : {"a", "b", "c", "d"}) {
      weights.push_back(register_parameter(name, at::ones({8, 8})));
    }
    state = register_buffer("state", at::zeros({8}));
  }
  at::Tensor forward(const at::Tensor& x) const { return compute(*this, x); }
  // Applies the i-th weight to x.
  at::Tensor layer(size_t i, const at::Tensor& x) const { return at::linear(x, weights[i]); }
  // The same, as a block.
  at::Tensor block(size_t i, const at::Tensor& x) const {
    return run_block(std::string(1, static_cast<char>('a' + i)), [&] { return layer(i, x); });
  }

  std::vector<at::Tensor> weights;
  at::Tensor state;
  Forward compute;
};

RunConfig chain_config() {
  RunConfig config = tiny_config("mlp");
  set_precision(config, "fp32");
  config.data.train.fields[0] = "inputs: float[8] in [-1, 1]";
  return config;
}

ModelBlocks chain_profile(const Chain::Forward& forward, bool freezes_first = false) {
  return profile_of(chain_config(),
                    [&] {
                      const auto chain = std::make_shared<Chain>(forward);
                      if (freezes_first) chain->weights[0].set_requires_grad(false);
                      return supervised(chain, {}, {.outputs = 8});
                    })
      .model;
}

TEST(BlockProfile, sees_a_tensor_that_skips_a_block) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    const at::Tensor first = chain.block(0, input);
    const at::Tensor second = chain.block(1, first);
    const at::Tensor third = run_block("c", [&] { return chain.layer(2, second) + first; });
    return chain.block(3, third);
  });
  EXPECT_EQ(names_of(model), (Words{"a", "b", "c", "d"}));
  EXPECT_EQ(obstacles_of(model), (Words{"", "block 'c' also needs a tensor of block 'a'", "", ""}));
  EXPECT_EQ(check_cut(model, 2, {"c"}),
            "[plan] parallel.cut_at: no cut before 'c' is possible, because block 'c' also needs a "
            "tensor of block 'a'; cut before 'b' or 'd'");
}

TEST(BlockProfile, sees_a_tensor_that_leaves_a_block_beside_its_output) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    at::Tensor inner;
    at::Tensor x = run_block("a", [&] {
      inner = chain.layer(0, input);
      return inner.tanh();
    });
    x = chain.block(1, x);
    x = run_block("c", [&] { return chain.layer(2, x) + inner; });
    return chain.block(3, x);
  });
  const std::string obstacle = "block 'c' also needs a tensor of block 'a'";
  EXPECT_EQ(obstacles_of(model), (Words{obstacle, obstacle, "", ""}));
}

TEST(BlockProfile, sees_code_between_blocks_that_later_stages_cannot_run) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    at::Tensor x = chain.block(0, input).tanh();
    for (const size_t i : {1U, 2U, 3U}) x = chain.block(i, x);
    return x;
  });
  const std::string obstacle = "the code after block 'a' computes with a tensor of block 'a'";
  EXPECT_EQ(obstacles_of(model), (Words{"", obstacle, obstacle, ""}));
}

// The last stage returns the terms, and has no tensor of a stage before it.
TEST(BlockProfile, sees_a_term_that_a_block_in_the_middle_makes) {
  const auto make_task = [] {
    const auto chain = std::make_shared<Chain>(Chain::Forward());
    Task task;
    task.module = chain;
    PhaseSpec phase;
    phase.forward = [chain](const Batch& batch) -> Terms {
      at::Tensor x = chain->block(0, batch["inputs"]), size;
      x = run_block("b", [&] {
        const at::Tensor y = chain->layer(1, x);
        size = y.square().sum();
        return y;
      });
      x = chain->block(3, chain->block(2, x));
      return {{"loss", x.sum(), "samples"}, {"size", size, "samples"}};
    };
    task.phases = {phase};
    return task;
  };
  const ModelBlocks model = profile_of(chain_config(), make_task).model;
  const std::string obstacle = "the code after block 'd' computes with a tensor of block 'b'";
  EXPECT_EQ(obstacles_of(model), (Words{"", obstacle, obstacle, ""}));
}

TEST(BlockProfile, sees_a_buffer_that_one_block_writes_and_a_later_one_reads) {
  const auto profile_with = [](bool in_block) {
    return chain_profile([in_block](const Chain& chain, const at::Tensor& input) {
      const auto write = [&] { at::Tensor(chain.state).add_(1); };
      at::Tensor x = run_block("a", [&] {
        if (in_block) write();
        return chain.layer(0, input);
      });
      if (!in_block) write();
      x = chain.block(1, x);
      x = run_block("c", [&] { return chain.layer(2, x) + chain.state; });
      return chain.block(3, x);
    });
  };
  const std::string obstacle = "block 'c' also needs a tensor of block 'a'";
  EXPECT_EQ(obstacles_of(profile_with(true)), (Words{obstacle, obstacle, "", ""}));
  EXPECT_EQ(obstacles_of(profile_with(false)), Words(4, "")) << "each stage writes its own";
  for (const bool in_block : {true, false}) {
    EXPECT_EQ(profile_with(in_block).buffers_written, std::vector<size_t>{0});
  }
}

// Two stages would each measure a statistic of their own.
TEST(BlockProfile, keeps_blocks_together_that_share_a_running_statistic) {
  const auto make_task = [] {
    at::Tensor mean = at::zeros({8}), variance = at::ones({8});
    const auto chain =
        std::make_shared<Chain>([mean, variance](const Chain& own, const at::Tensor& input) {
          at::Tensor x = own.block(0, input);
          for (const size_t i : {1U, 2U}) {
            x = run_block(i == 1 ? "b" : "c", [&] {
              return at::batch_norm(own.layer(i, x), {}, {}, mean, variance, /*training=*/true, 0.1,
                                    1e-5, /*cudnn_enabled=*/false);
            });
          }
          return own.block(3, x);
        });
    chain->register_buffer("running_mean", mean);
    chain->register_buffer("running_var", variance);
    return supervised(chain, {}, {.outputs = 8});
  };
  const ModelBlocks model = profile_of(chain_config(), make_task).model;
  EXPECT_EQ(names_of(model), (Words{"a", "b", "c", "d"}));
  const std::string obstacle =
      "blocks 'b' and 'c' share the buffer running_mean, which they change";
  EXPECT_EQ(obstacles_of(model), (Words{"", obstacle, "", ""}));
}

TEST(BlockProfile, does_not_take_a_buffer_that_is_only_read_for_one_that_is_written) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    return chain.block(1, chain.block(0, input) + chain.state);
  });
  EXPECT_EQ(model.buffers, Words{"state"});
  EXPECT_TRUE(model.buffers_written.empty());
}

TEST(BlockProfile, tells_what_code_before_a_block_uses_and_keeps) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    at::Tensor x = chain.block(0, input);
    const at::Tensor scale = chain.weights[3].select(0, 0).neg(), mask = input.gt(0).to(at::kFloat);
    for (const size_t i : {1U, 2U}) {
      x = run_block(i == 1 ? "b" : "c", [&] { return chain.layer(i, x) * mask * scale; });
    }
    return x;
  });
  EXPECT_EQ(obstacles_of(model), Words(3, ""));
  EXPECT_EQ(model.blocks[0].weights_before, std::vector<size_t>());
  EXPECT_EQ(model.blocks[1].weights, (std::vector<size_t>{1, 3}));
  EXPECT_EQ(model.blocks[1].weights_before, std::vector<size_t>{3});
  EXPECT_EQ(model.blocks[2].weights_before, std::vector<size_t>());
  EXPECT_EQ(model.blocks[0].kept_before, 0);
  EXPECT_EQ(model.blocks[1].kept_before, 4 * 8 + 4 * 8 / kProfiled) << "the mask, and the scale";
  EXPECT_GT(model.blocks[1].kept_bytes, model.blocks[1].kept_before);
  EXPECT_EQ(model.blocks[2].kept_before, 0);
}

TEST(BlockProfile, lets_every_stage_compute_what_the_batch_alone_gives) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    const at::Tensor mask = input.gt(0).to(at::kFloat);
    at::Tensor x = input;
    for (const size_t i : {0U, 1U, 2U, 3U}) {
      x = run_block(std::string(1, static_cast<char>('a' + i)),
                    [&] { return chain.layer(i, x) * mask; });
    }
    return x;
  });
  EXPECT_EQ(obstacles_of(model), Words(4, ""));
}

TEST(BlockProfile, lets_a_block_change_its_input_in_place) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    at::Tensor x = chain.block(0, input);
    x = run_block("b", [&] { return chain.layer(1, x.relu_()); });
    return chain.block(3, chain.block(2, x));
  });
  EXPECT_EQ(obstacles_of(model), Words(4, ""));
}

TEST(BlockProfile, has_outermost_blocks_alone_and_no_scopes_of_a_profiler) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    const at::Tensor x = run_block("outer", [&] {
      at::RecordFunction own(at::RecordScope::USER_SCOPE);
      if (own.isActive()) own.before("a part");
      return chain.block(1, chain.block(0, input));
    });
    at::RecordFunction own(at::RecordScope::USER_SCOPE);
    if (own.isActive()) own.before("the rest");
    return chain.block(3, chain.block(2, x));
  });
  EXPECT_EQ(names_of(model), (Words{"outer", "c", "d"}));
  EXPECT_EQ(model.blocks[0].forward, 2 * 8 * 8);
  EXPECT_EQ(model.blocks[0].weights, (std::vector<size_t>{0, 1}));
}

TEST(BlockProfile, keeps_of_each_block_what_backward_needs) {
  const ModelBlocks model = chain_profile([](const Chain& chain, const at::Tensor& input) {
    // Backward needs the input of a product and the result of an exponential.
    at::Tensor x = run_block("a", [&] { return input.exp(); });
    x = chain.block(1, x);
    x = run_block("c", [&] { return x.exp(); });
    return chain.block(3, x);
  });
  EXPECT_EQ(model.blocks[0].kept_bytes, 4 * 8);
  EXPECT_EQ(model.blocks[1].kept_bytes, 0);
  EXPECT_EQ(model.blocks[2].kept_bytes, 4 * 8);
}

TEST(BlockProfile, has_no_backward_and_no_state_below_the_first_trained_weight) {
  const ModelBlocks model = chain_profile(
      [](const Chain& chain, const at::Tensor& input) {
        at::Tensor x = input;
        for (const size_t i : {0U, 1U, 2U, 3U}) x = chain.block(i, x);
        return x;
      },
      /*freezes_first=*/true);
  ASSERT_EQ(model.blocks.size(), 4U);
  EXPECT_EQ(model.blocks[0].backward, 0);
  EXPECT_EQ(model.blocks[1].backward, 8 * 8);
  EXPECT_EQ(model.blocks[2].backward, 2 * 8 * 8);
  EXPECT_EQ(model.weights[0].state_bytes, 0);
  EXPECT_GT(model.weights[1].state_bytes, 0);
}

TEST(BlockProfile, of_a_model_without_blocks_has_none) {
  const ModelBlocks model = chain_profile(
      [](const Chain& chain, const at::Tensor& input) { return chain.layer(0, input); });
  EXPECT_TRUE(model.blocks.empty());
  EXPECT_EQ(model.weights.size(), 4U);
}

TEST(BlockProfile, of_a_model_that_needs_values_is_an_error) {
  EXPECT_ANY_THROW(chain_profile([](const Chain& chain, const at::Tensor& input) {
    const at::Tensor x = chain.block(0, input);
    return chain.block(1, x) * x.sum().item<double>();
  }));
  const ModelBlocks next = chain_profile(
      [](const Chain& chain, const at::Tensor& input) { return chain.block(0, input); });
  EXPECT_EQ(names_of(next), Words{"a"});
}

}  // namespace
}  // namespace tanren::testing
