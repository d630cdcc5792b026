#include "tanren/quantize/readers.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_listener.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace tanren {
namespace {

using Forward = std::function<at::Tensor(const at::Tensor&)>;

Task predicting(const std::shared_ptr<torch::nn::Module>& module, const Forward& forward) {
  Task task;
  task.module = module;
  task.predict = [forward](const Batch& batch) {
    const at::Tensor y = forward(batch["inputs"]);
    return Prediction{{{"sum", y.sum()}}, y, batch["inputs"]};
  };
  return task;
}

Batch batch_for(const at::Tensor& inputs) {
  Batch batch;
  batch.fields.set("inputs", inputs);
  batch.ids = at::arange(inputs.size(0));
  return batch;
}

// "linear: why", or "stays: why", by the parameter's name.
std::map<std::string, std::string> readers_of(const Task& task, const at::Tensor& inputs) {
  std::map<std::string, std::string> found;
  for (const ParameterReaders& of : find_readers(task, batch_for(inputs))) {
    found[of.name] = (of.reader ? std::string(name(*of.reader)) : "stays") + ": " + of.why;
  }
  return found;
}

// A module whose only parameter `forward` reads.
std::string reader_of(const at::Tensor& value, const at::Tensor& inputs,
                      const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& read) {
  const auto module = std::make_shared<torch::nn::Module>();
  const at::Tensor weight = module->register_parameter("weight", value);
  return readers_of(predicting(module, [&](const at::Tensor& x) { return read(x, weight); }),
                    inputs)["weight"];
}

TEST(Readers, of_torchs_own_layers_are_found_without_a_list_of_them) {
  const auto convolutions = std::make_shared<torch::nn::SequentialImpl>(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3).stride(2).padding(1)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).groups(2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).dilation(2).padding(2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(torch::kSame)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 6, {3, 1})),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 5, 1).stride({1, 2}).bias(false)));
  auto found =
      readers_of(predicting(convolutions, [&](const auto& x) { return convolutions->forward(x); }),
                 at::randn({2, 4, 16, 16}));
  EXPECT_EQ(found["0.weight"], "convolution: convolution");
  EXPECT_EQ(found["0.bias"], "stays: it is no matrix");
  EXPECT_EQ(found["1.weight"], "stays: a convolution in groups reads it");
  EXPECT_EQ(found["2.weight"], "stays: a dilated convolution reads it");
  EXPECT_EQ(found["3.weight"], "stays: conv2d with a padding in words reads it");
  EXPECT_EQ(found["4.weight"], "stays: a convolution whose kernel is not square reads it");
  EXPECT_EQ(found["5.weight"], "stays: a convolution with unequal strides or paddings reads it");

  const auto tokens = std::make_shared<torch::nn::Module>();
  const auto words = tokens->register_module(
      "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(30, 12).padding_idx(0)));
  const auto memory = tokens->register_module("memory", torch::nn::LSTM(12, 10));
  const auto head = tokens->register_module("head", torch::nn::Linear(10, 5));
  const auto forward = [&](const at::Tensor& ids) {
    return head->forward(std::get<0>(memory->forward(words->forward(ids))));
  };
  found = readers_of(predicting(tokens, forward), at::zeros({4, 7}, at::kLong));
  EXPECT_EQ(found["words.weight"], "embedding: embedding");
  EXPECT_EQ(found["memory.weight_ih_l0"], "stays: lstm reads it");
  EXPECT_EQ(found["head.weight"], "linear: linear");
}

TEST(Readers, tell_a_weight_from_its_transpose_and_from_a_part_of_it) {
  const at::Tensor x = at::randn({3, 8}), square = at::randn({8, 8});
  const auto of = [&](const auto& read) { return reader_of(square, x, read); };
  const at::Tensor bias = at::zeros({8});
  EXPECT_EQ(of([](const auto& x, const auto& w) { return at::linear(x, w); }), "linear: linear");
  EXPECT_EQ(of([](const auto& x, const auto& w) { return at::matmul(x, w.t()); }),
            "linear: linear");
  EXPECT_EQ(of([](const auto& x, const auto& w) { return at::matmul(x, w); }),
            "projection: projection");
  EXPECT_EQ(of([&](const auto& x, const auto& w) { return at::addmm(bias, x, w); }),
            "projection: projection");
  EXPECT_EQ(of([&](const auto& x, const auto& w) { return at::addmm(bias, x, w, 1, 3); }),
            "stays: an addmm that scales reads it");
  EXPECT_EQ(of([&](const auto& x, const auto& w) { return at::addmm(x, x, w); }),
            "stays: an addmm that adds more than a bias reads it");
  EXPECT_EQ(of([](const auto& x, const auto& w) { return x + w.narrow(0, 0, 3); }),
            "stays: narrow reads it");
  EXPECT_EQ(of([](const auto& x, const auto& w) { return at::mm(x, w); }), "stays: mm reads it");
  EXPECT_EQ(of([](const auto& x, const auto& w) { return at::linear(w, x); }),
            "stays: linear as its input reads it");
}

TEST(Readers, are_all_counted) {
  const at::Tensor ids = at::zeros({3}, at::kLong);
  const auto of = [&](const auto& read) { return reader_of(at::randn({8, 8}), ids, read); };
  const auto tied = [](const auto& x, const auto& w) { return at::linear(at::embedding(w, x), w); };
  EXPECT_EQ(of(tied), "linear: linear and embedding");
  EXPECT_EQ(of([](const auto& x, const auto& w) { return at::embedding(w, x) + w.sum(); }),
            "stays: sum reads it");
  EXPECT_EQ(of([](const auto& x, const auto& w) { return at::matmul(at::embedding(w, x), w); }),
            "stays: projection and embedding read it, which need different scales");
  EXPECT_EQ(of([](const auto& x, const auto&) { return x * 2; }),
            "stays: no operator reads it in a prediction");
  const auto two_strides = [](const auto& x, const auto& w) {
    return at::conv2d(x, w, {}, 1, 1).sum() + at::conv2d(x, w, {}, 2, 1).sum();
  };
  EXPECT_EQ(reader_of(at::randn({4, 4, 3, 3}), at::randn({2, 4, 8, 8}), two_strides),
            "stays: convolutions of different strides or paddings read it");
  EXPECT_EQ(reader_of(at::randn({8, 8}, at::kDouble), ids,
                      [](const auto& x, const auto& w) { return at::embedding(w, x); }),
            "stays: it is Double");
}

TEST(Readers, of_parameters_that_share_memory_let_both_stay) {
  const auto module = std::make_shared<torch::nn::Module>();
  const at::Tensor flat = at::randn({2, 8, 8});
  const at::Tensor one = module->register_parameter("one", flat[0]);
  const at::Tensor two = module->register_parameter("two", flat[1]);
  const auto forward = [&](const at::Tensor& x) { return at::linear(at::linear(x, one), two); };
  auto found = readers_of(predicting(module, forward), at::randn({3, 8}));
  EXPECT_EQ(found["one"], "stays: it shares its memory with another parameter");
  EXPECT_EQ(found["two"], found["one"]);
}

TEST(Readers, leave_flags_and_numbers_as_they_were) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(8, 4);
  const at::Tensor before = linear->weight.detach().clone();
  bool trained = true;
  Task task = predicting(linear, [&](const at::Tensor& x) {
    trained = linear->is_training();
    return linear->forward(x);
  });
  find_readers(task, batch_for(at::randn({3, 8})));
  EXPECT_FALSE(trained);
  EXPECT_TRUE(linear->is_training());
  EXPECT_TRUE(at::equal(linear->weight, before));
  EXPECT_EQ(OperatorListenerScope::current(), nullptr);
  EXPECT_TRUE(linear->forward(at::ones({1, 8})).isfinite().all().item<bool>());
}

TEST(Readers, are_those_of_the_forward_if_the_task_does_not_predict) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(8, 4);
  Task task;
  task.module = linear;
  PhaseSpec phase;
  phase.forward = [linear](const Batch& batch) {
    return Terms{{"sum", linear->forward(batch["inputs"]).sum()}};
  };
  task.phases.push_back(phase);
  EXPECT_EQ(readers_of(task, at::randn({3, 8}))["weight"], "linear: linear");
}

TEST(Readers, of_both_forwards_are_those_of_the_prediction_if_the_training_has_no_others) {
  const auto module = std::make_shared<torch::nn::Module>();
  const auto add = [&](const char* name) {
    return module->register_parameter(name, at::randn({8, 8}));
  };
  const at::Tensor alike = add("alike"), other = add("other"), tied = add("tied"),
                   unread = add("unread"), own = add("own");
  Task task;
  task.module = module;
  task.predict = [&](const Batch& batch) {
    const at::Tensor rows = at::embedding(tied, batch["inputs"]);
    const at::Tensor y = at::linear(at::linear(at::linear(rows, alike), other), unread);
    return Prediction{{{"sum", y.sum()}}, y, batch["inputs"]};
  };
  PhaseSpec phase;
  phase.forward = [&](const Batch& batch) {
    const at::Tensor rows = at::embedding(tied, batch["inputs"]);
    const at::Tensor y = at::mm(at::linear(at::linear(rows, alike), own), other);
    return Terms{{"sum", at::linear(y, tied).sum()}};
  };
  task.phases = {phase};
  const Batch batch = batch_for(at::zeros({3}, at::kLong));
  const std::map<std::string, std::pair<std::string, std::string>> expected = {
      {"alike", {"linear", "linear"}},
      {"other", {"linear", "mm reads it in training"}},
      {"tied", {"embedding", "linear and embedding"}},
      {"unread", {"linear", "linear"}},
      {"own", {"no operator reads it in a prediction", "no operator reads it in a prediction"}}};
  for (const ParameterReaders& of : find_readers(task, batch)) {
    EXPECT_EQ(of.why, expected.at(of.name).first) << of.name;
  }
  for (const ParameterReaders& of : find_readers(task, batch, Forwards::training_too)) {
    EXPECT_EQ(of.why, expected.at(of.name).second) << of.name;
    EXPECT_EQ(of.reader.has_value(), of.name != "other" && of.name != "own") << of.name;
  }
}

TEST(Readers, of_a_model_that_needs_values_are_an_error) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(8, 4);
  const Task task = predicting(linear, [&](const at::Tensor& x) {
    return linear->forward(x) * (x.sum().item<double>() > 0 ? 1 : 2);
  });
  TANREN_EXPECT_CONTAINS(testing::error_of<Error>([&] {
                           find_readers(task, batch_for(at::randn({3, 8})));
                         }),
                         "asks for the value of a tensor");
  Task says = predicting(linear, [&](const at::Tensor& x) { return linear->forward(x); });
  says.facts.runs_dry = false;
  EXPECT_THROW(find_readers(says, batch_for(at::randn({3, 8}))), NeedsValues);
}

}  // namespace
}  // namespace tanren
