// Runs of TorchScript files: they train as the same model written in C++, and a run that was
// stopped goes on bitwise. Issue 30.
#include "tests/support/loop_run.h"
#include "tests/support/script_files.h"

#include "tanren/base/error.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/known_kinds.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/model_description.h"
#include "tanren/interop/whole_model.h"
#include "tanren/model/supervised.h"
#include "tanren/model/torchscript.h"
#include "tanren/run/start_files.h"

#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <vector>

namespace tanren::testing {
namespace {

class ScriptRun : public Loop {
 protected:
  // A config of the file in which `module` is saved.
  RunConfig config_of(const torch::jit::Module& module) {
    const std::string file = (folder_.path() / "net.pt").string();
    module.save(file);
    auto config = tiny_config("mlp");
    config.run.device = "cpu";
    config.run.steps = 6;
    config.model = {.kind = "torchscript", .path = file};
    config.batch.global_batch = "8";
    config.clip.norm = 1;
    return config;
  }
  std::string log(const std::string& folder) const {
    static const std::regex timing(R"(,"timing":\{[^}]*\})");
    return std::regex_replace(read_file(folder_.path() / folder / "log.jsonl"), timing, "");
  }
  TensorMap weights(const std::string& folder) const {
    const auto last = latest_checkpoint(folder_.path() / folder / "checkpoints");
    return read_checkpoint(last.value()).model.tensors;
  }
};

// The file's parameters under the same names, with a forward that is written here in C++.
Task written_twin(const std::string& file, const ModelOptions& options, const DataInfo& info) {
  const auto module = load_script(file);
  const auto named = module->named_parameters();
  const auto forward = [named](const Batch& batch) {
    const at::Tensor inputs = batch["inputs"].flatten(1).to(named["layer.weight"].scalar_type());
    const at::Tensor x = at::linear(inputs, named["layer.weight"], named["layer.bias"]).tanh();
    return at::linear(x, named["head.weight"], named["head.bias"]);
  };
  return supervised_batches(module, forward, options, info);
}

TEST_F(ScriptRun, trains_as_the_same_model_written_here_at_any_split) {
  auto config = config_of(script_classifier());
  const auto data = open_dataset(config.data.train, "data.train");
  TinyRun written(config, data.get(), written_twin(config.model.path, config.model, data->info()));
  written.steps(5);
  for (const int64_t microbatch : {8, 3}) {
    config.batch.microbatch = microbatch;
    TinyRun scripted(config, data.get(), std::nullopt);
    scripted.steps(5);
    EXPECT_LT(relative(scripted.weights(), written.weights()), 1e-10) << microbatch;
  }
}

// The optimising executor would compile again after a run's first calls, and after those of a
// resumed run.
TEST_F(ScriptRun, goes_on_bitwise_after_a_stop_at_any_step) {
  auto config = config_of(script_classifier("torch.dropout(torch.tanh(x), 0.3, self.training)"));
  config.precision.mode = "fp32";
  config.checkpoint.every = 2;
  EXPECT_EQ(go(config, "whole").loop.ending, Ending::finished);
  const TensorMap expected = weights("whole");
  for (const int64_t step : {1, 2, 3, 4, 5}) {
    const std::string folder = "stopped-" + std::to_string(step);
    auto first = config;
    first.run.stop_after = step;
    EXPECT_EQ(go(first, folder).loop.ending, Ending::stopped);
    EXPECT_EQ(go(config, folder).loop.ending, Ending::finished);
    EXPECT_EQ(log("whole"), log(folder));
    for (const auto& [name, tensor] : weights(folder)) {
      EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name << ", stopped at " << step;
    }
  }
}

TEST_F(ScriptRun, goes_on_with_its_own_file_alone) {
  auto config = config_of(script_classifier());
  config.checkpoint.every = 1;
  config.data.eval = config.data.train;
  auto first = config;
  first.run.stop_after = 2;
  EXPECT_EQ(go(first, "run").loop.ending, Ending::stopped);
  const std::string own = read_file(config.model.path);
  script_classifier("torch.relu(x)").save(config.model.path);
  const std::filesystem::path run = folder_.path() / "run";
  auto fork = config;
  fork.run.fork_from = run.string();
  const std::vector<std::function<void()>> uses = {
      [&] { go(config, "run"); }, [&] { go(fork, "fork"); },
      [&] { plan_only(config, test_registry(), run); },
      [&] {
        evaluate_checkpoint(config, chosen_checkpoint(config, run), test_registry(), nullptr);
      }};
  for (const auto& use : uses) {
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>(use),
                           "run began with the TorchScript file of checksum ");
  }
  write_file(config.model.path, own);
  for (const size_t i : {1, 2, 3}) EXPECT_NO_THROW(uses[i]()) << i;
  EXPECT_EQ(go(config, "run").loop.ending, Ending::finished);
}

TEST_F(ScriptRun, is_of_the_file_that_was_loaded_whatever_stands_there_by_then) {
  const auto config = config_of(script_classifier());
  const Task task = torchscript_task(config.model, {.input_shape = {1, 8, 8}, .outputs = 5});
  const std::string own = program_of(config.model)->checksum;
  EXPECT_EQ(program_of(config.model, task)->checksum, own);
  script_classifier("torch.relu(x)").save(config.model.path);
  EXPECT_NE(program_of(config.model)->checksum, own);
  EXPECT_EQ(program_of(config.model, task)->checksum, own);
}

// A classifier that calls torch.batch_norm on rows itself. Nothing prevents it from getting a
// single row.
torch::jit::Module row_norm_classifier() {
  torch::jit::Module module = script_module("RowNormClassifier");
  module.register_module("head", script_linear("Head", 64, 5));
  module.register_buffer("running_mean", at::zeros({64}));
  module.register_buffer("running_var", at::ones({64}));
  module.define(
      "def forward(self, inputs):\n"
      "  x = torch.batch_norm(torch.flatten(inputs, 1), None, None, self.running_mean,\n"
      "    self.running_var, self.training, 0.1, 1e-5, False)\n"
      "  return self.head.forward(x)\n");
  return module;
}

// Batch norm of pictures has many rows in one sample. Batch norm of rows needs two samples.
TEST_F(ScriptRun, is_measured_with_2_samples_only_where_1_does_not_do) {
  const auto reasons = [&](const torch::jit::Module& module, const std::string& folder) {
    auto config = config_of(module);
    config.precision.mode = "fp32";
    config.batch.microbatch = 4;
    config.run.steps = 1;
    go(config, folder);
    std::string text;
    for (const PlanLine& line : plan_.lines) text += line.reason + "\n";
    return text;
  };
  const std::string of_pictures = reasons(
      script_classifier("torch.reshape(torch.batch_norm(torch.reshape(x, [-1, 4]), None, None, "
                        "None, None, self.training, 0.1, 1e-5, False), [-1, 16])"),
      "pictures");
  TANREN_EXPECT_CONTAINS(of_pictures, "batch norm couples the samples of a microbatch");
  TANREN_EXPECT_CONTAINS(of_pictures, "by two steps of 1 and 2 samples");
  TANREN_EXPECT_CONTAINS(reasons(script_classifier("x + torch.narrow(x, 0, 1, 1)"), "rows"),
                         "by two steps of 2 and 4 samples");
  TANREN_EXPECT_CONTAINS(reasons(row_norm_classifier(), "one_row"),
                         "by two steps of 2 and 4 samples");
}

TEST_F(ScriptRun, says_in_its_plan_what_the_file_draws_and_how_its_memory_was_measured) {
  auto config = config_of(script_classifier("torch.dropout(x, 0.3, self.training)"));
  config.batch.microbatch = 4;
  config.run.steps = 1;
  go(config, "run");
  std::string reasons;
  for (const PlanLine& line : plan_.lines) reasons += line.reason + "\n";
  TANREN_EXPECT_CONTAINS(reasons, "aten::dropout is torch's dropout");
  TANREN_EXPECT_CONTAINS(reasons, "by two steps of 1 and 2 samples");
}

TEST_F(ScriptRun, freezes_modules_of_the_file_by_their_names) {
  auto config = config_of(script_classifier());
  config.model.freeze = {"layer.*"};
  config.checkpoint.every = 6;
  go(config, "run");
  const TensorMap trained = weights("run");
  const auto module = load_script(config.model.path);
  for (const auto& item : module->named_parameters()) {
    const bool is_frozen = item.key().starts_with("layer.");
    EXPECT_EQ(at::equal(trained.at(item.key()).to(at::kFloat), item.value()), is_frozen)
        << item.key();
  }
}

// Code is loaded only from the place that the user names.
TEST_F(ScriptRun, exports_weights_whose_reader_names_the_program) {
  const auto config = config_of(script_classifier());
  go(config, "run");
  const auto file = folder_.path() / "run" / "model.tanren.safetensors";
  Metadata metadata = read_safetensors(file).metadata;
  const auto path_in = [&](const std::vector<std::string>& sets) {
    const KnownKinds known = ModelRegistry().kinds();
    return description_of(metadata, file, sets, known).config.model.path;
  };
  EXPECT_EQ(path_in({}), "");
  EXPECT_EQ(path_in({"model.path=" + config.model.path}), config.model.path);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { load_model(file); }), "set model.path");
  std::string& text = metadata.at("tanren.config");
  const size_t place = text.find("path = \"\"", text.find("[model]"));
  ASSERT_NE(place, std::string::npos) << text;
  text.replace(place, 9, "path = \"/theirs.pt\"");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { path_in({}); }),
                         "names a program to load as its model");
}

}  // namespace
}  // namespace tanren::testing
