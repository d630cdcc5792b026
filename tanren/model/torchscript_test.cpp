#include "tanren/model/torchscript.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/couples_samples.h"
#include "tanren/model/losses.h"
#include "tanren/model/named_modules.h"
#include "tanren/model/registry.h"
#include "tests/support/script_files.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

namespace tanren {
namespace {

using testing::error_of;
using testing::script_classifier;
using testing::script_module;

const DataInfo kPictures{.input_shape = {1, 8, 8}, .outputs = 5};

class TorchScript : public ::testing::Test {
 protected:
  std::string saved(const torch::jit::Module& module) const {
    const std::string file = (folder_.path() / "net.pt").string();
    module.save(file);
    return file;
  }
  // A module with this forward alone.
  std::string defined(const std::string& forward) const {
    torch::jit::Module module = script_module("Net");
    module.register_parameter("scale", at::ones({1}).set_requires_grad(true), false);
    module.define(forward);
    return saved(module);
  }
  static ModelOptions options(const std::string& file) {
    return {.kind = "torchscript", .path = file};
  }
  Task task(const torch::jit::Module& module) const {
    return ModelRegistry().make(options(saved(module)), kPictures);
  }
  Task task_with(const std::string& forward) const {
    return ModelRegistry().make(options(defined(forward)), kPictures);
  }
  static Batch batch(int64_t size = 3) {
    Batch made;
    made.ids = at::arange(size, at::kLong);
    made.fields.set("inputs", at::randn({size, 1, 8, 8}));
    made.fields.set("labels", made.ids % 5);
    return made;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TorchScript, a_file_that_is_none_is_refused_by_its_name) {
  for (const std::string& file :
       {folder_.file("text.pt", "no archive"), std::string("absent.pt")}) {
    const std::string error =
        error_of<ConfigError>([&] { ModelRegistry().make(options(file), kPictures); });
    TANREN_EXPECT_CONTAINS(error, file + " cannot be read as a TorchScript file");
  }
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { ModelRegistry().make(options(""), kPictures); }),
      "set model.path");
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { task_with("def forward(self):\n  return self.scale\n"); }),
      "has no forward with an argument");
}

// A data set of a terabyte, named by mistake.
TEST_F(TorchScript, a_file_that_is_none_is_not_read_whole) {
  const std::string file = folder_.file("data.bin", "no archive");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { ModelRegistry().make(options(file), kPictures); }),
      "cannot be read as a TorchScript file: it is no zip archive");
}

TEST_F(TorchScript, is_not_loaded_in_a_dry_run) {
  const std::string file = saved(script_classifier());
  const DryScope dry;
  EXPECT_THROW(ModelRegistry().make(options(file), kPictures), NeedsValues);
}

TEST_F(TorchScript, has_the_names_of_its_file_and_computes_with_the_tensors_of_its_modules) {
  const Task made = task(script_classifier());
  const auto named = made.module->named_parameters();
  EXPECT_EQ(named.keys(),
            (std::vector<std::string>{"layer.weight", "layer.bias", "head.weight", "head.bias"}));
  const Batch some = batch();
  const at::Tensor before = made.predict(some).outputs;
  const at::NoGradGuard no_grad;
  at::Tensor bias = named["head.bias"];
  bias.add_(1);
  EXPECT_TRUE(at::allclose(made.predict(some).outputs, before + 1));
  bias.set_data(bias.to(at::kDouble));  // as what changes a model's dtype does
  for (const char* name : {"layer.weight", "layer.bias", "head.weight"}) {
    at::Tensor other = named[name];
    other.set_data(other.to(at::kDouble));
  }
  EXPECT_EQ(made.predict(some).outputs.scalar_type(), at::kDouble) << "the inputs are cast";
}

TEST_F(TorchScript, gives_its_parameters_gradients) {
  const Task made = task(script_classifier());
  made.phases.front().forward(batch()).front().sum.backward();
  for (const auto& item : made.module->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
  }
}

TEST_F(TorchScript, trains_and_evaluates_module_by_module) {
  torch::jit::Module inner = script_module("Inner");
  inner.define("def forward(self, x):\n  if self.training:\n    return x + 1\n  return x\n");
  torch::jit::Module outer = script_module("Outer");
  outer.register_parameter("scale", at::ones({1}).set_requires_grad(true), false);
  outer.register_module("inner", inner);
  outer.define(
      "def forward(self, inputs):\n"
      "  x = self.inner.forward(self.scale * torch.zeros_like(inputs))\n"
      "  if self.training:\n    return x + 10\n  return x\n");
  const auto root = load_script(saved(outer));
  EXPECT_TRUE(root->is_training());
  EXPECT_EQ(root->name(), "Outer");
  const Task made =
      ModelRegistry().make({.kind = "torchscript", .path = saved(outer), .loss = "mse"},
                           {.input_shape = {1}, .outputs = 1, .class_labels = false});
  Batch some;
  some.ids = at::arange(1, at::kLong);
  some.fields.set("inputs", at::zeros({1, 1}));
  some.fields.set("labels", at::zeros({1, 1}));
  const auto value = [&] { return made.predict(some).outputs.item<double>(); };
  EXPECT_EQ(value(), 11);
  made.module->named_children()["inner"]->train(false);  // as a frozen module is
  EXPECT_EQ(value(), 10);
  made.module->eval();
  EXPECT_EQ(value(), 0);
  made.module->train();
  EXPECT_EQ(value(), 11);
}

TEST_F(TorchScript, takes_arguments_from_fields_of_their_names) {
  const Task wants = task_with("def forward(self, inputs, mask):\n  return inputs * mask\n");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { wants.predict(batch()); }),
                         "forward wants mask, and the data has no such field, only inputs, labels");
  const Task made = task_with(
      "def forward(self, x, mask, times: float = 2.0, labels: Optional[Tensor] = None):\n"
      "  if labels is not None:\n    return torch.zeros([3, 5])\n"
      "  return torch.flatten(x, 1)[:, :5] * mask * times\n");
  Batch some = batch();
  some.fields.set("mask", at::full({3, 1}, 3.0));
  const at::Tensor expected = some["inputs"].flatten(1).narrow(1, 0, 5) * 6;
  EXPECT_TRUE(at::allclose(made.predict(some).outputs, expected));
}

TEST_F(TorchScript, keeps_the_checksum_of_the_bytes_that_were_loaded) {
  const Task made = task(script_classifier());
  const std::string file = (folder_.path() / "net.pt").string(), bytes = read_file(file);
  write_file(file, "another");
  EXPECT_EQ(script_checksum(*made.module), hash_text(content_hash(bytes)));
  EXPECT_EQ(script_checksum(*made.module->children().front()), "");
  EXPECT_EQ(script_checksum(*named_modules("Net")), "");
}

TEST_F(TorchScript, gives_a_tensor_a_tuple_that_begins_with_it_or_a_dictionary_with_logits) {
  const Batch some = batch();
  const at::Tensor scores = some["inputs"].flatten(1).narrow(1, 0, 5);
  const std::string begin = "def forward(self, inputs):\n  x = torch.flatten(inputs, 1)[:, :5]\n";
  for (const char* end :
       {"  return x\n", "  return (x, x + 1)\n", "  return {\"hidden\": x + 1, \"logits\": x}\n"}) {
    EXPECT_TRUE(at::equal(task_with(begin + end).predict(some).outputs, scores)) << end;
  }
  for (const char* end : {"  return 1.5\n", "  return {\"hidden\": x}\n", "  return [x]\n"}) {
    const Task made = task_with(begin + end);
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { made.predict(some); }),
                           "let it give a tensor");
  }
}

TEST_F(TorchScript, tells_what_its_graph_draws_and_couples) {
  const auto facts = [&](const std::string& between) {
    const Task made = task(script_classifier(between));
    EXPECT_FALSE(made.facts.runs_dry);
    EXPECT_EQ(made.facts.least_samples, 1) << "batch norm of pictures needs no second one";
    return torch_dropout(made) + (couples_samples(made) ? ", coupled" : "");
  };
  EXPECT_EQ(facts("torch.tanh(x)"), "");
  EXPECT_EQ(facts("torch.dropout(x, 0.5, self.training)"), "aten::dropout");
  EXPECT_EQ(facts("torch.dropout(x, 0.0, self.training)"), "");
  EXPECT_EQ(facts("x + torch.rand_like(x)"), "aten::rand_like");
  const auto norm = [&](const std::string& training) {
    return facts("torch.batch_norm(x, None, None, None, None, " + training + ", 0.1, 1e-5, False)");
  };
  EXPECT_EQ(norm("self.training"), ", coupled");
  EXPECT_EQ(norm("False"), "");
  const auto refused = [&](const std::string& between) {
    return error_of<ConfigError>([&] { facts(between); });
  };
  TANREN_EXPECT_CONTAINS(refused("torch.dropout(x, 0.5, True)"), "always in training mode");
  TANREN_EXPECT_CONTAINS(refused("torch.dropout(x, 0.5, False)"), "never draws, as in a trace");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { norm("True"); }),
                         "aten::batch_norm is always in training mode");
}

TEST_F(TorchScript, saved_in_evaluation_mode_trains_in_training_mode) {
  torch::jit::Module module = script_classifier("torch.dropout(x, 0.5, self.training)");
  module.eval();
  const Task made = task(module);
  const Batch some = batch();
  const auto loss = [&] { return made.phases[0].forward(some).front().sum.item<double>(); };
  EXPECT_TRUE(made.module->is_training());
  EXPECT_NE(loss(), loss());
  made.module->eval();
  EXPECT_EQ(loss(), loss());
}

TEST_F(TorchScript, that_replaces_a_tensor_is_refused) {
  torch::jit::Module module = script_module("Assigns");
  module.register_parameter("weight", at::randn({5, 64}).set_requires_grad(true), false);
  module.register_buffer("mean", at::zeros({5}));
  module.define(
      "def forward(self, inputs):\n"
      "  x = torch.linear(torch.flatten(inputs, 1), self.weight)\n"
      "  self.mean = self.mean * 0.9 + x.detach().mean(0)\n"
      "  return x - self.mean\n");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { task(module); }), "forward assigns mean");
}

TEST_F(TorchScript, that_fails_tells_the_cause) {
  const Task made = task(script_classifier("x[:, :3]"));
  try {
    made.phases[0].forward(batch());
    FAIL() << "no error";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    TANREN_EXPECT_CONTAINS(text, "mat1 and mat2");
    EXPECT_EQ(text.find("TorchScript interpreter"), std::string::npos) << text;
  }
}

TEST_F(TorchScript, keeps_a_tied_weight_one_and_refuses_two_of_one_memory) {
  const at::Tensor weight = at::randn({5, 5}).set_requires_grad(true);
  torch::jit::Module tied = script_module("Tied");
  tied.register_parameter("one", weight, false);
  tied.register_parameter("other", weight, false);
  tied.define("def forward(self, inputs):\n  return self.one + self.other\n");
  const auto named = load_script(saved(tied))->named_parameters();
  EXPECT_TRUE(named["one"].is_same(named["other"]));
  torch::jit::Module views = script_module("Views");
  views.register_parameter("one", weight.detach(), false);
  views.register_parameter("other", weight.detach().view({25}), false);
  views.define("def forward(self, inputs):\n  return self.one\n");
  const std::string file = saved(views);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { load_script(file); }),
                         "one and other are two tensors in the same memory");
}

TEST_F(TorchScript, scores_each_token_if_the_task_says_so) {
  torch::jit::Module module = script_module("Tokens");
  module.register_parameter("table", at::randn({7, 7}).set_requires_grad(true), false);
  module.define("def forward(self, inputs):\n  return torch.embedding(self.table, inputs)\n");
  ModelOptions asked = options(saved(module));
  asked.task = "next_token";
  const Task made = ModelRegistry().make(asked, {.input_shape = {4}, .vocab_size = 7});
  Batch some;
  some.ids = at::arange(2, at::kLong);
  some.fields.set("inputs", at::arange(8, at::kLong).reshape({2, 4}) % 7);
  some.fields.set("labels", (some["inputs"] + 1) % 7);
  const Term term = made.phases.front().forward(some).front();
  const at::Tensor table = made.module->named_parameters()["table"];
  const at::Tensor scores = at::embedding(table, some["inputs"]);
  EXPECT_EQ(term.count_name, "tokens");
  EXPECT_TRUE(at::allclose(term.sum, token_cross_entropy(scores, some["labels"]).sum));
  EXPECT_EQ(made.predict(some).outputs.sizes(), (std::vector<int64_t>{2, 7, 4}));
  EXPECT_EQ(made.classes, 7);
}

}  // namespace
}  // namespace tanren
