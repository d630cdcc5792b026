// The expected parameters, multiply-adds and activations were computed for the same networks in
// Python with torchinfo 1.8.0, torchsummary 1.5.1 and torch 2.11's FlopCounterMode, by
// tests/fixtures/make/summary-oracle.
#include "tanren/model/layer_table.h"

#include "tanren/base/testing.h"
#include "tanren/blocks/block.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/registry.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>

namespace tanren::testing {
namespace {

namespace nn = torch::nn;

at::Tensor twice(const at::Tensor& x) {
  const at::Tensor y = at::empty_like(x);
  const auto* from = x.const_data_ptr<float>();
  std::transform(from, from + x.numel(), y.mutable_data_ptr<float>(),
                 [](float v) { return 2 * v; });
  return y;
}

TORCH_LIBRARY(tanren_test, library) { library.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(tanren_test, CPU, library) { library.impl("twice", twice); }

Batch batch_of(at::Tensor inputs, at::ScalarType labels = at::kLong) {
  Batch batch;
  batch.ids = at::arange(inputs.size(0), at::kLong);
  batch.fields.set("labels", at::zeros({inputs.size(0)}, labels));
  batch.fields.set("inputs", std::move(inputs));
  return batch;
}

Batch images(int64_t n, int64_t side) { return batch_of(at::zeros({n, 1, side, side})); }

// The table of one module followed by a classification loss.
template <class M>
LayerTable table_of(std::shared_ptr<M> module, const Batch& batch) {
  return layer_table([&] { return supervised(module, {}, {.outputs = 2}); }, batch);
}

// The table of a module that this function makes.
template <class M>
LayerTable table_of(const Batch& batch) {
  return layer_table([] { return supervised(std::make_shared<M>(), {}, {.outputs = 2}); }, batch);
}

LayerTable zoo(const ModelOptions& options, const Batch& batch) {
  const DataInfo info{.input_shape = batch["inputs"].sizes().slice(1).vec(), .outputs = 10};
  return layer_table([&] { return ModelRegistry().make(options, info); }, batch);
}

const LayerRow& row(const LayerTable& table, const std::string& name) {
  for (const LayerRow& row : table.rows) {
    if (row.name == name) return row;
  }
  throw std::runtime_error("no row " + name);
}

using Shape = std::vector<int64_t>;

struct Lenet : nn::Module {
  explicit Lenet(int64_t features = 400) : fc1(register_module("fc1", nn::Linear(features, 120))) {}
  at::Tensor forward(at::Tensor x) {
    x = pool1(relu1(conv1(x)));
    x = pool2(relu2(conv2(x)));
    return fc2(relu3(fc1(x.flatten(1))));
  }
  nn::Conv2d conv1{register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)))};
  nn::ReLU relu1{register_module("relu1", nn::ReLU())};
  nn::MaxPool2d pool1{register_module("pool1", nn::MaxPool2d(2))};
  nn::Conv2d conv2{register_module("conv2", nn::Conv2d(6, 16, 5))};
  nn::ReLU relu2{register_module("relu2", nn::ReLU())};
  nn::MaxPool2d pool2{register_module("pool2", nn::MaxPool2d(2))};
  nn::Linear fc1;
  nn::ReLU relu3{register_module("relu3", nn::ReLU())};
  nn::Linear fc2{register_module("fc2", nn::Linear(120, 10))};
};

// Attention over tokens, a transposed convolution, a recurrent layer.
struct Mixed : nn::Module {
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = embed(ids);
    const int64_t n = x.size(0), t = x.size(1), c = x.size(2);
    const auto parts = qkv(x).view({n, t, 3, 4, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor a =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = norm(x + proj(a.transpose(1, 2).reshape({n, t, c})));
    x = up(x.transpose(1, 2)).transpose(1, 2);
    x = std::get<0>(rnn->forward(x));
    return head(x.select(1, -1));
  }
  nn::Embedding embed{register_module("embed", nn::Embedding(100, 32))};
  nn::Linear qkv{register_module("qkv", nn::Linear(32, 96))};
  nn::Linear proj{register_module("proj", nn::Linear(32, 32))};
  nn::LayerNorm norm{register_module("norm", nn::LayerNorm(nn::LayerNormOptions({32})))};
  nn::ConvTranspose1d up{register_module(
      "up",
      nn::ConvTranspose1d(nn::ConvTranspose1dOptions(32, 8, 4).stride(2).padding(1).groups(4)))};
  nn::LSTM rnn{register_module("rnn", nn::LSTM(nn::LSTMOptions(8, 16).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(16, 5))};
};

// A module with one linear layer and any computation around it.
struct Around : nn::Module {
  using Function = std::function<at::Tensor(nn::Linear&, const at::Tensor&)>;
  explicit Around(Function function) : compute(std::move(function)) {}
  at::Tensor forward(const at::Tensor& x) { return compute(inner, x); }
  nn::Linear inner{register_module("inner", nn::Linear(4, 4))};
  Function compute;
};

LayerTable around(Around::Function function) {
  return table_of(std::make_shared<Around>(std::move(function)), batch_of(at::zeros({3, 4})));
}

TEST(LayerTable, a_linear_layer_that_does_not_fit_is_named_with_expected_and_got) {
  const auto table = table_of(std::make_shared<Lenet>(256), images(1, 28));
  EXPECT_EQ(table.mismatch,
            "[summary] fc1 (Linear) got an input of shape [1, 400] and expects [..., 256]; before "
            "it: conv2 (Conv2d) gave [1, 16, 10, 10]; make them equal");
  EXPECT_EQ(row(table, "pool2").output_shape, (Shape{1, 16, 5, 5}));
  EXPECT_TRUE(row(table, "fc2").output_shape.empty()) << "it stops there";
}

TEST(LayerTable, a_convolution_that_does_not_fit_is_named_with_expected_and_got) {
  const auto channels = table_of<Lenet>(batch_of(at::zeros({2, 3, 28, 28})));
  EXPECT_EQ(channels.mismatch,
            "[summary] conv1 (Conv2d) got an input of shape [2, 3, 28, 28] and expects [n, 1, h, "
            "w]; make them equal");
  TANREN_EXPECT_CONTAINS(
      table_of<Lenet>(images(1, 6)).mismatch,
      "conv2 (Conv2d) got an input of shape [1, 6, 3, 3] and expects at least 5");
}

TEST(LayerTable, norms_and_embeddings_that_do_not_fit_are_named) {
  const auto norm = std::make_shared<nn::LayerNormImpl>(nn::LayerNormOptions({8}));
  TANREN_EXPECT_CONTAINS(table_of(norm, batch_of(at::zeros({2, 4}))).mismatch,
                         "LayerNorm got an input of shape [2, 4] and expects [..., 8]");
  const auto group = std::make_shared<nn::GroupNormImpl>(nn::GroupNormOptions(2, 6));
  TANREN_EXPECT_CONTAINS(table_of(group, batch_of(at::zeros({2, 4, 3}))).mismatch,
                         "GroupNorm got an input of shape [2, 4, 3] and expects [n, 6, ...]");
}

TEST(LayerTable, a_matrix_product_with_a_weight_that_does_not_fit_is_named) {
  const auto table = around([](nn::Linear& inner, const at::Tensor& x) {
    return at::matmul(x.slice(1, 0, 3), inner->weight.t());
  });
  TANREN_EXPECT_CONTAINS(table.mismatch,
                         "inner (Linear) got an input of shape [3, 3] and expects [..., 4]");
}

TEST(LayerTable, an_operator_between_layers_that_does_not_fit_is_named_with_its_shapes) {
  const auto table = around([](nn::Linear& inner, const at::Tensor& x) {
    return inner(x) + at::zeros({3, 5});
  });
  TANREN_EXPECT_CONTAINS(table.mismatch, "add cannot take inputs of shapes [3, 4] and [3, 5]");
  TANREN_EXPECT_CONTAINS(table.mismatch, "inner (Linear) gave [3, 4]");
  EXPECT_EQ(table.mismatch.find('\n'), std::string::npos);
}

TEST(LayerTable, a_forward_that_depends_on_values_says_so) {
  const auto table = around(
      [](nn::Linear& inner, const at::Tensor& x) { return inner(x) * x.sum().item<double>(); });
  TANREN_EXPECT_CONTAINS(table.mismatch, "needs values, and a dry run has only shapes");
}

TEST(LayerTable, errors_of_the_model_itself_pass_through) {
  const auto message = error_of<std::logic_error>([] {
    around([](nn::Linear&, const at::Tensor&) -> at::Tensor { throw std::logic_error("mine"); });
  });
  EXPECT_EQ(message, "mine");
}

TEST(LayerTable, agrees_with_torchsummary_and_the_flop_counter_on_a_convolutional_net) {
  const auto table = table_of<Lenet>(images(4, 28));
  EXPECT_EQ(table.mismatch, "");
  EXPECT_EQ(table.total().parameters, 51902);
  EXPECT_EQ(table.total().multiply_adds, 1627200);
  // torchsummary counts the results of nine layers; here each has its own module.
  EXPECT_EQ(table.total().activation_bytes, 4 * 4 * 14434);
  EXPECT_EQ(row(table, "relu2").activation_bytes, 4 * 4 * 16 * 10 * 10);
  EXPECT_EQ(row(table, "pool1").output_shape, (Shape{4, 6, 14, 14}));
  EXPECT_EQ(row(table, "").output_shape, (Shape{4, 10}));
  EXPECT_EQ(table.input_bytes, 4 * 4 * 28 * 28);
}

TEST(LayerTable, agrees_with_the_flop_counter_on_the_zoo) {
  const auto mlp = zoo({.kind = "mlp"}, images(2, 8));
  EXPECT_EQ(mlp.total().parameters, 26122);
  EXPECT_EQ(mlp.total().multiply_adds, 51712);
  const auto convnet = zoo({.kind = "convnet"}, images(2, 8));
  EXPECT_EQ(convnet.total().parameters, 77162);
  EXPECT_EQ(convnet.total().multiply_adds, 4232448);
  EXPECT_EQ(row(convnet, "stages.1.conv1").output_shape, (Shape{2, 64, 4, 4}));
}

TEST(LayerTable, agrees_with_the_flop_counter_on_attention_recurrence_and_transposed_convolution) {
  const auto table = table_of<Mixed>(batch_of(at::zeros({3, 7}, at::kLong)));
  EXPECT_EQ(table.mismatch, "");
  EXPECT_EQ(table.total().parameters, 9501);
  EXPECT_EQ(table.total().multiply_adds, 165552);
  EXPECT_EQ(row(table, "rnn").multiply_adds, 14 * 3 * (8 * 64 + 16 * 64));
  EXPECT_EQ(row(table, "up").output_shape, (Shape{3, 8, 14}));
  EXPECT_EQ(row(table, "").multiply_adds, 3 * 4 * 7 * 7 * (8 + 8)) << "attention has no weights";
}

TEST(LayerTable, a_model_beyond_any_memory_takes_none) {
  const auto table = zoo({.kind = "mlp", .hidden = {2'000'000, 2'000'000}}, images(64, 8));
  EXPECT_EQ(table.total().parameters,
            65 * 2'000'000LL + 2'000'001LL * 2'000'000LL + 10 * 2'000'001LL);
  EXPECT_EQ(table.mismatch, "");
}

TEST(LayerTable, operators_without_a_meta_kernel_tell_their_shapes_on_zeros) {
  const auto table = around([](nn::Linear& inner, const at::Tensor& x) {
    const at::Tensor y = inner(x);
    const at::Tensor z = at::where(y > 0, y, at::var(y, {1}, true, true)).flip({0});
    return z.index_select(1, at::tensor({1, 0}));
  });
  EXPECT_EQ(table.mismatch, "");
  EXPECT_EQ(row(table, "").output_shape, (Shape{3, 2}));
}

TEST(LayerTable, operators_of_another_library_without_a_meta_kernel_run_on_zeros) {
  const auto table = around([](nn::Linear& inner, const at::Tensor& x) {
    static const auto twice = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("tanren_test::twice", "")
                                  .typed<at::Tensor(const at::Tensor&)>();
    return inner(twice.call(x));
  });
  EXPECT_EQ(table.mismatch, "");
  EXPECT_GT(table.total().multiply_adds, 0);
}

TEST(LayerTable, views_and_updates_in_place_add_no_bytes) {
  const auto table = around([](nn::Linear& inner, const at::Tensor& x) {
    return inner(x).view({2, 6}).relu_().view({3, 4});
  });
  EXPECT_EQ(table.total().activation_bytes, 4 * 3 * 4);
}

TEST(LayerTable, a_weight_that_is_used_twice_counts_its_parameters_once) {
  const auto table = around([](nn::Linear& inner, const at::Tensor& x) {
    return at::matmul(inner(x), inner->weight.t());
  });
  EXPECT_EQ(row(table, "inner").uses, 2);
  EXPECT_EQ(row(table, "inner").multiply_adds, 2 * 3 * 4 * 4);
  EXPECT_EQ(table.total().parameters, 20);
}

TEST(LayerTable, frozen_parameters_are_not_trainable_and_buffers_no_parameters) {
  const auto model =
      std::make_shared<Around>([](nn::Linear& inner, const at::Tensor& x) { return inner(x); });
  model->inner->weight.set_requires_grad(false);
  model->register_buffer("mask", at::zeros({10}));
  const auto table = table_of(model, batch_of(at::zeros({3, 4})));
  EXPECT_EQ(row(table, "inner").parameters, 20);
  EXPECT_EQ(row(table, "inner").trainable, 4);
  EXPECT_EQ(table.parameter_bytes, 80);
  EXPECT_EQ(table.buffer_bytes, 40);
}

// Two blocks; an operator without weights belongs to the block that it runs in.
struct Blocks : nn::Module {
  at::Tensor forward(at::Tensor x) {
    for (const char* name : {"first", "second"}) {
      x = run_block(name, [&] { return at::gelu((*this)[name]->forward(x)); });
    }
    return x;
  }
  std::shared_ptr<Around> operator[](const std::string& name) {
    return std::dynamic_pointer_cast<Around>(named_children()[name]);
  }
  Blocks() {
    const auto plain = [](nn::Linear& inner, const at::Tensor& x) { return inner(x); };
    register_module("first", std::make_shared<Around>(plain));
    register_module("second", std::make_shared<Around>(plain));
  }
};

TEST(LayerTable, an_operator_without_weights_belongs_to_the_block_that_it_runs_in) {
  const auto table = table_of<Blocks>(batch_of(at::zeros({3, 4})));
  EXPECT_EQ(row(table, "first").activation_bytes, 4 * 3 * 4);
  EXPECT_EQ(row(table, "second").activation_bytes, 4 * 3 * 4);
  EXPECT_EQ(row(table, "").activation_bytes, 0);
}

TEST(LayerTable, the_loss_is_in_no_row) {
  const auto table = around([](nn::Linear& inner, const at::Tensor& x) { return inner(x); });
  EXPECT_EQ(table.total().activation_bytes, 4 * 3 * 4);
  EXPECT_GT(table.loss_bytes, 0);
}

// Makes six values of four, and judges six values: labels, or what was made of the inputs.
struct Adversary : nn::Module {
  nn::Linear make{register_module("make", nn::Linear(4, 6))};
  nn::ReLU relu{register_module("relu", nn::ReLU())};
  nn::Linear judge{register_module("judge", nn::Linear(6, 1))};
};

using Forward = std::function<Terms(Adversary&, const Batch&)>;

// The training table of phases with these forwards; the labels are [5, 6].
LayerTable trained(const std::vector<Forward>& forwards) {
  Batch batch = batch_of(at::zeros({5, 4}));
  batch.fields.set("labels", at::zeros({5, 6}));
  const auto make_task = [&] {
    const auto net = std::make_shared<Adversary>();
    Task task{.module = net};
    for (const Forward& forward : forwards) {
      task.phases.push_back(
          {.forward = [net, forward](const Batch& given) { return forward(*net, given); }});
    }
    return task;
  };
  return training_table(make_task, batch, [](const Task&, const PhaseSpec& phase, const Batch& b) {
    phase.forward(b);
  });
}

Terms judged(const at::Tensor& score) { return {{"score", at::relu(1 - score).sum()}}; }

Terms judge_made(Adversary& net, const Batch& batch) {
  return judged(net.judge(net.relu(net.make(batch["inputs"]))));
}

TEST(TrainingTable, has_the_layers_of_all_phases_also_those_that_see_the_labels) {
  const auto judge_labels = [](Adversary& net, const Batch& batch) {
    return judged(net.judge(batch["labels"]));
  };
  const LayerTable alone = trained({judge_labels});
  EXPECT_EQ(row(alone, "judge").output_shape, (Shape{5, 1}));
  EXPECT_EQ(row(alone, "make").output_shape, Shape());
  const LayerTable both = trained({judge_labels, judge_made});
  EXPECT_EQ(both.mismatch, "");
  EXPECT_EQ(row(both, "make").output_shape, (Shape{5, 6}));
  EXPECT_EQ(row(both, "judge").output_shape, (Shape{5, 1}));
  EXPECT_EQ(row(both, "judge").uses, 2);
}

TEST(TrainingTable, has_no_operator_of_a_loss_in_a_layer) {
  const LayerTable table = trained({judge_made});
  EXPECT_EQ(row(table, "relu").output_shape, (Shape{5, 6})) << "the hinge has [5, 1]";
  EXPECT_EQ(row(table, "").output_shape, (Shape{5, 1})) << "and the sum []";
}

TEST(TrainingTable, has_no_operator_of_a_backward_inside_a_forward) {
  const LayerTable table = trained({[](Adversary& net, const Batch& batch) {
    const at::Tensor point = batch["labels"].detach().requires_grad_();
    const auto slope = torch::autograd::grad({net.judge(point).sum()}, {point}, {},
                                             /*retain_graph=*/true, /*create_graph=*/true);
    return Terms{{"penalty", slope[0].square().sum()}};
  }});
  EXPECT_EQ(table.mismatch, "");
  EXPECT_EQ(row(table, "judge").output_shape, (Shape{5, 1})) << "the slope has [5, 6]";
}

TEST(TrainingTable, tells_dtypes_of_outputs_and_of_parameters) {
  const LayerTable table = trained({[](Adversary& net, const Batch& batch) {
    net.judge->to(at::kDouble);
    return judged(net.judge(net.make(batch["inputs"]).to(at::kDouble)));
  }});
  EXPECT_EQ(row(table, "make").output_dtype, at::kFloat);
  EXPECT_EQ(row(table, "judge").output_dtype, at::kDouble);
  EXPECT_EQ(row(table, "judge").parameter_dtype, at::kFloat) << "as the task was made";
  EXPECT_EQ(row(table, "relu").parameter_dtype, at::ScalarType::Undefined);
  EXPECT_EQ(row(table, "relu").output_dtype, at::ScalarType::Undefined) << "it did not run";
}

TEST(TrainingTable, ends_where_values_are_needed_and_where_a_forward_throws) {
  const LayerTable values = trained({[](Adversary& net, const Batch& batch) {
    const at::Tensor made = net.make(batch["inputs"]);
    return judged(net.judge(made * made.max().item<double>()));
  }});
  EXPECT_EQ(row(values, "make").output_shape, (Shape{5, 6}));
  EXPECT_EQ(row(values, "judge").output_shape, Shape());
  EXPECT_EQ(row(values, "judge").parameters, 7);
  TANREN_EXPECT_CONTAINS(values.mismatch, "needs values");
  const LayerTable thrown = trained({[](Adversary& net, const Batch& batch) -> Terms {
    net.make(batch["inputs"]);
    throw std::runtime_error("it failed");
  }});
  EXPECT_EQ(row(thrown, "make").output_shape, (Shape{5, 6}));
  TANREN_EXPECT_CONTAINS(thrown.mismatch, "it failed");
}

TEST(DryScope, large_tensors_have_no_memory_inside_and_all_have_it_afterwards) {
  {
    const DryScope scope(nullptr, 64 << 10);
    EXPECT_TRUE(is_dry(at::empty({1'000'000, 1'000'000}).uniform_(-1, 1)));
    EXPECT_EQ(at::full({3}, 2.0).sum().item<double>(), 6.0) << "small ones are real";
  }
  EXPECT_TRUE(at::zeros({100'000}).is_cpu());
  EXPECT_EQ(at::ones({100'000}).sum().item<double>(), 100'000);
}

TEST(DryScope, a_small_tensor_stays_itself_when_a_large_one_is_written_into_it) {
  const DryScope scope(nullptr, 64 << 10);
  at::Tensor small = at::zeros({4});
  const at::Tensor same = small.copy_(at::zeros({100'000}).slice(0, 0, 4));
  EXPECT_TRUE(same.is_same(small));
  EXPECT_FALSE(is_dry(small));
}

}  // namespace
}  // namespace tanren::testing
