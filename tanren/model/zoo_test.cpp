#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/blocks/block.h"
#include "tanren/model/convnet.h"
#include "tanren/model/couples_samples.h"
#include "tanren/model/gpt2.h"
#include "tanren/model/mlp.h"
#include "tanren/model/registry.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

const DataInfo kDigits{.input_shape = {1, 8, 8}, .outputs = 10};

int64_t num_parameters(const Module& module) {
  int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

std::string names_of(const Module& module) {
  std::string names;
  for (const auto& item : module.named_parameters()) names += item.key() + " ";
  return names;
}

TEST(Zoo, impossible_sizes_and_names_are_config_errors) {
  EXPECT_THROW(Mlp({.hidden = {8, 0}}, kDigits), ConfigError);
  EXPECT_THROW(Mlp({.activation = "swish"}, kDigits), ConfigError);
  EXPECT_THROW(Convnet({.channels = {}}, kDigits), ConfigError);
  EXPECT_THROW(Convnet({.channels = {8, -1}}, kDigits), ConfigError);
  EXPECT_THROW(Convnet({.norm = "layer"}, kDigits), ConfigError);
  EXPECT_THROW(Convnet({}, DataInfo{.input_shape = {64}, .outputs = 10}), ConfigError);
}

TEST(Zoo, mlp_has_the_expected_parameters) {
  const Mlp mlp({.hidden = {128, 128}}, DataInfo{.input_shape = {64}, .outputs = 10});
  EXPECT_EQ(num_parameters(mlp), 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10);
  EXPECT_EQ(names_of(mlp),
            "hidden.0.weight hidden.0.bias hidden.1.weight hidden.1.bias head.weight head.bias ");
}

TEST(Zoo, mlp_without_hidden_layers_is_a_linear_model) {
  const Mlp mlp({.hidden = {}}, kDigits);
  EXPECT_EQ(num_parameters(mlp), 650);
  EXPECT_EQ(mlp.forward(at::randn({3, 1, 8, 8})).sizes(), at::IntArrayRef({3, 10}));
}

TEST(Zoo, mlp_equals_the_chain_of_its_layers) {
  for (const char* activation : {"relu", "gelu", "tanh"}) {
    Mlp mlp({.hidden = {7, 5}, .activation = activation},
            DataInfo{.input_shape = {2, 3}, .outputs = 4});
    const auto p = mlp.named_parameters();
    const auto act = activation_named(activation);
    const at::Tensor x = at::randn({6, 2, 3});
    at::Tensor y = act(at::linear(x.flatten(1), p["hidden.0.weight"], p["hidden.0.bias"]));
    y = act(at::linear(y, p["hidden.1.weight"], p["hidden.1.bias"]));
    EXPECT_TRUE(at::equal(mlp.forward(x), at::linear(y, p["head.weight"], p["head.bias"])));
  }
}

TEST(Zoo, convnet_has_the_expected_parameters_for_each_norm) {
  const auto count = [](const char* norm) {
    return num_parameters(Convnet({.channels = {4, 6}, .norm = norm}, kDigits));
  };
  const int64_t weights = 4 * 9 + 2 * 4 * 4 * 9 + 6 * 4 * 9 + 6 * 6 * 9 + 6 * 4 + 6 * 10 + 10;
  const int64_t per_conv = 4 + 4 + 4 + 6 + 6;        // stem, conv1 and conv2 of both stages
  EXPECT_EQ(count("none"), weights + per_conv + 6);  // a bias per convolution, also the shortcut's
  EXPECT_EQ(count("group"), weights + 2 * per_conv);
  EXPECT_EQ(count("batch"), weights + 2 * per_conv);
}

TEST(Zoo, convnet_equals_its_layers_in_plain_torch) {
  Convnet net({.channels = {4, 6}, .norm = "none", .activation = "tanh"}, kDigits);
  const auto p = net.named_parameters();
  const auto conv = [&](const at::Tensor& x, const std::string& name, int64_t stride, int64_t pad) {
    return at::conv2d(x, p[name + ".weight"], p[name + ".bias"], stride, pad);
  };
  const at::Tensor image = at::randn({2, 1, 8, 8});
  at::Tensor x = at::tanh(conv(image, "stem.conv", 1, 1));
  x = at::tanh(x + conv(at::tanh(conv(x, "stages.0.conv1", 1, 1)), "stages.0.conv2", 1, 1));
  x = at::tanh(conv(x, "stages.1.shortcut", 2, 0) +
               conv(at::tanh(conv(x, "stages.1.conv1", 2, 1)), "stages.1.conv2", 1, 1));
  EXPECT_EQ(x.sizes(), at::IntArrayRef({2, 6, 4, 4}));
  const at::Tensor y = at::linear(x.mean({2, 3}), p["head.weight"], p["head.bias"]);
  EXPECT_TRUE(at::allclose(net.forward(image), y, 1e-6, 1e-6));
}

TEST(Zoo, convnet_takes_images_from_8_to_64_pixels_and_without_a_channel_dim) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 8, 8}, {3, 64, 64}, {3, 13, 9}, {28, 28}, {1, 1, 1}}) {
    Convnet net({.channels = {8, 8, 16}}, DataInfo{.input_shape = shape, .outputs = 5});
    std::vector<int64_t> sizes = {2};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    EXPECT_EQ(net.forward(at::randn(sizes)).sizes(), at::IntArrayRef({2, 5}));
  }
}

TEST(Zoo, dropout_makes_any_split_equal_the_whole_batch) {
  const ModelOptions options{.hidden = {16, 16}, .channels = {4, 8}, .dropout = 0.4};
  const Mlp mlp(options, kDigits);
  const Convnet convnet(options, kDigits);
  const at::Tensor x = at::randn({30, 1, 8, 8});
  const at::Tensor ids = at::arange(100, 130);
  const auto run = [&](const auto& net, int64_t begin, int64_t end) {
    const RandomScope scope(1, 2, ids.slice(0, begin, end));
    return net.forward(x.slice(0, begin, end));
  };
  const auto check = [&](const auto& net) {
    const at::Tensor whole = run(net, 0, 30);
    for (const int64_t size : {15, 7, 1}) {
      std::vector<at::Tensor> parts;
      for (int64_t i = 0; i < 30; i += size)
        parts.push_back(run(net, i, std::min<int64_t>(i + size, 30)));
      EXPECT_TRUE(at::allclose(at::cat(parts), whole, 1e-5, 1e-5)) << size;
    }
    const RandomScope other(1, 3, ids);
    EXPECT_FALSE(at::allclose(net.forward(x), whole, 1e-3, 1e-3));
  };
  check(mlp);
  check(convnet);
}

TEST(Zoo, evaluation_needs_no_random_scope) {
  Mlp mlp({.dropout = 0.5}, kDigits);
  const at::Tensor x = at::randn({2, 64});
  EXPECT_THROW(mlp.forward(x), Error);
  mlp.eval();
  EXPECT_TRUE(at::equal(mlp.forward(x), mlp.forward(x)));
}

TEST(Zoo, only_batch_norm_couples_samples) {
  EXPECT_TRUE(couples_samples(Convnet({.norm = "batch"}, kDigits)));
  EXPECT_FALSE(couples_samples(Convnet({.norm = "group"}, kDigits)));
  EXPECT_FALSE(couples_samples(Convnet({.norm = "none"}, kDigits)));
  EXPECT_FALSE(couples_samples(Mlp({}, kDigits)));
  EXPECT_TRUE(couples_samples(Module("torch::nn::BatchNorm1dImpl")));
}

TEST(Zoo, draws_dropout_by_sample_and_a_torch_dropout_is_named) {
  using torch::nn::Module;
  EXPECT_EQ(torch_dropout(Mlp({.dropout = 0.5}, kDigits)), "");
  Module outer("outer");
  const auto inner = outer.register_module("blocks", std::make_shared<Module>("block"));
  EXPECT_EQ(torch_dropout(outer), "");
  inner->register_module("drop", std::make_shared<Module>("torch::nn::DropoutImpl"));
  EXPECT_EQ(torch_dropout(outer), "blocks.drop");
  Gpt2Shape shape{.num_layers = 1, .num_heads = 1, .hidden_size = 8, .intermediate_size = 8};
  EXPECT_EQ(torch_dropout(Gpt2(shape)), "");
  shape.fused_attention_dropout = true;
  EXPECT_EQ(torch_dropout(Gpt2(shape)), "the fused attention");
}

TEST(TaskFacts, are_the_tasks_own_and_else_told_by_the_types_of_its_modules) {
  const auto net = std::make_shared<Module>("net");
  net->register_module("norm", std::make_shared<Module>("torch::nn::BatchNorm1dImpl"));
  net->register_module("drop", std::make_shared<Module>("torch::nn::DropoutImpl"));
  Task task{.module = net};
  EXPECT_TRUE(couples_samples(task));
  EXPECT_EQ(torch_dropout(task), "drop");
  task.facts = {.couples_samples = false, .torch_dropout = ""};
  EXPECT_FALSE(couples_samples(task));
  EXPECT_EQ(torch_dropout(task), "");
  task.module = std::make_shared<Module>("graph");
  task.facts = {.couples_samples = true, .torch_dropout = "the graph"};
  EXPECT_TRUE(couples_samples(task));
  EXPECT_EQ(torch_dropout(task), "the graph");
}

TEST(ModelRegistry, relies_on_nothing_that_a_kind_does_not_say) {
  const auto factory = [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<Mlp>(options, info), options, info);
  };
  ModelRegistry models;
  models.add("plain", factory);
  models.add("single", factory, {.forward_on_one_thread = true});
  const auto is_on_one_thread = [&](const std::string& kind) {
    return models.make({.kind = kind}, kDigits).phases.front().forward_on_one_thread;
  };
  EXPECT_FALSE(is_on_one_thread("plain"));
  EXPECT_TRUE(is_on_one_thread("single"));
  EXPECT_TRUE(is_on_one_thread("mlp"));
  EXPECT_FALSE(models.makes_anew("plain"));
  EXPECT_FALSE(models.makes_anew("single"));
  EXPECT_FALSE(models.makes_anew("unknown"));
  EXPECT_TRUE(models.makes_anew("mlp"));
}

TEST(Block, is_named_to_a_profiler_and_otherwise_just_called) {
  static thread_local std::string seen;
  seen.clear();
  EXPECT_EQ(run_block("a", [] { return at::ones({}); }).item<double>(), 1);
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& fn)
                                     -> std::unique_ptr<at::ObserverContext> {
        seen += std::string(fn.name()) + " ";
        return nullptr;
      }).scopes({at::RecordScope::USER_SCOPE}));
  const Convnet net({.channels = {4, 4}}, kDigits);
  net.forward(at::randn({1, 1, 8, 8}));
  at::removeCallback(handle);
  net.forward(at::randn({1, 1, 8, 8}));
  EXPECT_EQ(seen, "stem stages.0 stages.1 head ");
}

}  // namespace
}  // namespace tanren
