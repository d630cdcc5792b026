// The files of a quantisation-aware run and what other programs read from them. Also what the run
// freezes, warns about and shares between ranks.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/data/collated.h"
#include "tanren/interop/export.h"
#include "tanren/interop/model_description.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/interop/torch_optimizer.h"
#include "tanren/interop/torch_state.h"
#include "tanren/model/supervised.h"
#include "tanren/predict/described_model.h"
#include "tanren/run/prepare.h"
#include "tanren/run/quantized_run.h"
#include "tanren/run/run.h"
#include "tanren/train/quantized_training.h"
#include "tests/support/gan.h"
#include "tests/support/tiny_run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

RunConfig short_static_config(const std::string& kind = "convnet") {
  auto config = tiny_config(kind);
  config.run.device = "cpu";
  config.run.steps = 6;
  config.model.norm = kind == "convnet" ? "batch" : config.model.norm;
  config.precision.mode = "fp32";
  config.quantize.scheme = "static";
  config.quantize.samples = 32;
  config.checkpoint.every = 2;
  return config;
}

int64_t num_scales(const TensorMap& tensors) {
  return std::count_if(tensors.begin(), tensors.end(), [](const auto& named) {
    return named.first.find("input_scale") != std::string::npos ||
           named.first.find("input_zero_point") != std::string::npos;
  });
}

Prepared prepared_for(const RunConfig& config) {
  static const Registry registry;  // what is prepared refers to it
  return prepare(config, registry, false, "");
}

class QatFiles : public ::testing::Test {
 protected:
  RunOutput go(const RunConfig& config, const std::string& folder, const Registry& registry = {}) {
    return run({.config = config, .folder = place(folder), .sinks = {}}, registry);
  }
  fs::path place(const std::string& folder) const { return folder_.path() / folder; }
  fs::path last(const std::string& folder) const {
    return *latest_checkpoint(place(folder) / "checkpoints");
  }

  TemporaryFolder folder_;
};

// Python's load_state_dict accepts only the model's own names.
TEST_F(QatFiles, of_a_step_are_those_of_the_plain_model_for_torch_and_to_convert) {
  const auto config = short_static_config();
  go(config, "run");
  ASSERT_GT(num_scales(read_checkpoint(last("run")).model.tensors), 0);
  const auto images = open_dataset(config.data.train, "data.train");
  const Task plain = build_task(config, ModelRegistry(), *images);
  const fs::path file = place("step.pt");
  write_torch_checkpoint(last("run"), file, Registry().known());
  const WeightsFile read = read_weights(file);
  const TensorMap model = state_dict_of(read).tensors;
  EXPECT_EQ(model.size(), tensors_of(*plain.module).size());
  EXPECT_EQ(num_scales(model), 0);
  size_t updated = 0;
  const auto optimizers = torch_optimizers_of(read, file.string());
  for (const auto& group : optimizers.at(0).groups) {
    updated += group.parameters.size();
    for (const std::string& name : group.names) {
      EXPECT_EQ(name.find("input_scale"), std::string::npos) << name;
    }
  }
  EXPECT_EQ(updated, plain.module->named_parameters().size());
  const StateDict state = read_expanded(last("run")).state;
  EXPECT_EQ(state.tensors.size(), model.size());
  ASSERT_EQ(state.remarks.size(), 1u);
  TANREN_EXPECT_CONTAINS(state.remarks[0], "scales and zero points");
}

// A model that uses such tensor names for its own purposes.
struct OwnScales : torch::nn::Module {
  OwnScales() {
    weight = register_parameter("weight", at::randn({5, 64}) / 8);
    input_scale = register_parameter("input_scale", at::full({1}, 0.5));
    register_buffer("input_zero_point", at::zeros({1}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) const {
    return at::linear(x.flatten(1) * input_scale, weight);
  }

  at::Tensor weight, input_scale;
};

TEST_F(QatFiles, of_a_plain_run_keep_tensors_that_are_named_as_scales) {
  ModelRegistry models;
  models.add("own_scales", [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<OwnScales>(), options, info);
  });
  const Registry registry(models);
  auto config = short_static_config("own_scales");
  config.quantize = {};
  go(config, "plain", registry);
  EXPECT_EQ(num_scales(read_safetensors(place("plain") / kWholeFile).tensors), 2);
  EXPECT_EQ(num_scales(checkpoint_weights(last("plain"), false).tensors), 2);
  EXPECT_EQ(num_scales(read_expanded(last("plain")).state.tensors), 2);
  config.model.init_from = place("plain").string();
  config.run.steps = 1;
  EXPECT_EQ(go(config, "next", registry).summary.steps, 1);
}

// Has such names beside a matrix that stays fp32, because no linear layer reads it.
struct OwnScalesBesideOurs : torch::nn::Module {
  OwnScalesBesideOurs() {
    const auto body = register_module("body", std::make_shared<torch::nn::Module>());
    weight = body->register_parameter("weight", at::randn({64, 64}) / 8);
    input_scale = body->register_parameter("input_scale", at::full({1}, 0.5));
    body->register_buffer("input_zero_point", at::zeros({1}, at::kLong));
    const auto head = register_module("head", std::make_shared<torch::nn::Module>());
    head_weight = head->register_parameter("weight", at::randn({5, 64}) / 8);
  }
  at::Tensor forward(const at::Tensor& x) const {
    return at::linear(at::mm(x.flatten(1) * input_scale, weight), head_weight);
  }

  at::Tensor weight, input_scale, head_weight;
};

TEST_F(QatFiles, of_a_step_keep_a_models_own_tensors_that_are_named_as_scales) {
  ModelRegistry models;
  models.add("own_scales", [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<OwnScalesBesideOurs>(), options, info);
  });
  const Registry registry(models);
  auto config = short_static_config("own_scales");
  go(config, "run", registry);
  EXPECT_EQ(num_scales(read_checkpoint(last("run")).model.tensors), 4);
  for (const TensorMap& tensors :
       {checkpoint_weights(last("run"), false).tensors, read_expanded(last("run")).state.tensors,
        read_safetensors(place("run") / kWholeFile).tensors}) {
    EXPECT_EQ(num_scales(tensors), 2);
    EXPECT_TRUE(tensors.contains("body.input_scale"));
    EXPECT_TRUE(tensors.contains("body.input_zero_point"));
  }
  config.quantize = {};
  config.model.init_from = last("run").string();
  config.run.steps = 1;
  EXPECT_EQ(go(config, "next", registry).summary.steps, 1);
}

TEST_F(QatFiles, an_8_bit_model_that_cannot_be_written_costs_neither_summary_nor_weights) {
  auto config = short_static_config();
  config.run.stop_after = 3;
  go(config, "run");
  write_file(place("run") / kQuantizedFolder, "in the way of a folder");
  config.run.stop_after.reset();
  const RunOutput output = go(config, "run");
  EXPECT_TRUE(output.quantized.empty());
  EXPECT_TRUE(fs::exists(place("run") / kWholeFile));
  const auto summary = nlohmann::json::parse(read_file(place("run") / "summary.json"));
  EXPECT_EQ(summary.at("status"), "finished");
  EXPECT_EQ(summary.at("steps"), 6);
  EXPECT_EQ(summary.at("weights"), "model.safetensors");
  const auto unwritten = summary.at("unwritten").get<std::string>();
  EXPECT_TRUE(unwritten.starts_with("[run] the 8-bit model could not be written: ")) << unwritten;
  TANREN_EXPECT_CONTAINS(unwritten, "quantized");

  fs::remove(place("run") / kQuantizedFolder);
  const RunOutput next = go(config, "run");
  EXPECT_EQ(next.loop.session_steps, 0);
  EXPECT_TRUE(fs::exists(place("run") / kQuantizedFolder / kWholeFile));
  const auto told = nlohmann::json::parse(read_file(place("run") / "summary.json"));
  EXPECT_EQ(told.at("status"), "finished");
  EXPECT_FALSE(told.contains("unwritten"));
  EXPECT_THROW(go(config, "run"), ConfigError) << "nothing is left to do";
}

// A process that is killed before the model is written leaves the first of the summaries.
TEST_F(QatFiles, an_8_bit_model_is_told_as_unwritten_until_it_is_there) {
  const auto config = short_static_config();
  const Prepared prepared = prepared_for(config);
  const TinyRun tiny(config, prepared.datasets.train.get(), prepared.task);
  RunOutput output;
  std::vector<std::string> told;
  const auto write_summary = [&] {
    told.push_back(output.summary.unwritten);
    if (told.size() > 1) throw RunError("[file] cannot write summary.json");
    EXPECT_FALSE(fs::exists(place("run") / kQuantizedFolder));
  };
  write_quantized(prepared, tiny.state, tiny.parts, place("run"), output, write_summary);
  ASSERT_EQ(told.size(), 2u);
  TANREN_EXPECT_CONTAINS(told[0], "is not written yet");
  EXPECT_EQ(told[1], "");
  EXPECT_TRUE(fs::exists(output.quantized));
  TANREN_EXPECT_CONTAINS(output.summary.unwritten, "[file] cannot write summary.json");

  fs::remove_all(place("run"));
  write_file(place("run"), "in the way of a folder");
  told.clear();
  write_quantized(prepared, tiny.state, tiny.parts, place("run"), output, write_summary);
  TANREN_EXPECT_CONTAINS(output.summary.unwritten, "the 8-bit model could not be written");
}

TEST_F(QatFiles, an_8_bit_model_stays_until_the_next_one_is_written_whole) {
  const auto config = short_static_config();
  const Prepared prepared = prepared_for(config);
  const TinyRun tiny(config, prepared.datasets.train.get(), prepared.task);
  const Dataset& train = *prepared.datasets.train;
  const auto write = [&] {
    return export_quantized(tiny.state, tiny.parts, folder_.path(),
                            describe_model(prepared.config, train.info(), train.size()),
                            *prepared.quantization);
  };
  const fs::path file = write();
  const std::string before = read_file(file);
  {
    const FullDiskScope full(100);
    EXPECT_THROW(write(), RunError);
  }
  EXPECT_EQ(read_file(file), before);

  write_file(file.parent_path() / "quantize.txt", "of this model");
  const at::NoGradGuard no_grad;
  tiny.state.task.module->named_parameters()["head.weight"].fill_(
      std::numeric_limits<double>::quiet_NaN());
  EXPECT_THROW(write(), InputError);
  EXPECT_EQ(read_file(file), before);
  EXPECT_TRUE(fs::exists(file.parent_path() / "quantize.txt"));
}

TEST_F(QatFiles, reports_of_an_older_8_bit_model_go_before_the_new_one) {
  auto config = short_static_config();
  const fs::path out = place("run") / kQuantizedFolder;
  go(config, "run");
  for (const char* report : {"quantize.txt", "quantize.json", "quantize.html"}) {
    write_file(out / report, "of another model");
  }
  write_file(out / "notes.txt", "of the user");
  config.run.steps = 8;
  EXPECT_TRUE(fs::equivalent(go(config, "run").quantized, out / kWholeFile));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(out)) {
    left.push_back(entry.path().filename().string());
  }
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{kWholeFile, "notes.txt"}));
}

// The statistics of its norms are fixed, so averaged weights need no estimate of them.
TEST_F(QatFiles, averages_of_a_step_predict) {
  auto config = short_static_config();
  config.average.kind = "swa";
  config.average.start = "2";
  config.run.stop_after = 4;
  go(config, "run");
  const DescribedModel model = described_model(place("run"), {}, Registry());
  EXPECT_EQ(model.read.metadata.at("weights"), "averaged");
  EXPECT_EQ(num_scales(model.read.tensors), 0);
}

TEST_F(QatFiles, exports_of_several_objectives_are_evaluated_though_a_group_is_of_scales) {
  ModelRegistry models;
  models.add("gan", [](const ModelOptions&, const DataInfo&) {
    Task task = one_forward_gan();
    const auto net = std::dynamic_pointer_cast<GanNet>(task.module);
    task.predict = [net](const Batch& batch) -> Prediction {
      const at::Tensor made = net->generate(batch);
      return {.terms = {sum_of("score", net->criticise(made))}};
    };
    return task;
  });
  const Registry registry(models);
  auto config = gan_config("fp32");
  config.run.device = "cpu";
  config.run.steps = 3;
  config.data.eval = config.data.train;
  config.quantize.scheme = "static";
  config.quantize.samples = 32;
  config.optimizer.groups = {{{"*.input_scale"}, 0.1, std::nullopt}};
  go(config, "run", registry);
  const auto report =
      evaluate_checkpoint(config, place("run") / "model.safetensors", registry, nullptr).report;
  EXPECT_FALSE(report.values.empty());
}

std::optional<PlanLine> line_of(const Plan& plan, const std::string& key) {
  for (const PlanLine& line : plan.lines) {
    if (line.key == key) return line;
  }
  return std::nullopt;
}

bool is_trained(const Prepared& prepared, const std::string& name) {
  return prepared.task.module->named_parameters()[name].requires_grad();
}

TEST(QatFreezing, of_a_weight_is_that_of_its_scale_unless_a_pattern_is_of_the_scale_alone) {
  auto config = short_static_config();
  config.model.freeze = {"*.weight"};
  config.model.unfreeze = {{{"head.weight"}, 3}};
  const Prepared with_weights = prepared_for(config);
  EXPECT_FALSE(is_trained(with_weights, "head.input_scale"));
  ASSERT_EQ(with_weights.plan.freeze.unfreezes.size(), 1u);
  EXPECT_EQ(with_weights.plan.freeze.unfreezes[0].parameters,
            (std::vector<std::string>{"head.weight", "head.input_scale"}));

  config.model.freeze = {"*.input_scale"};
  config.model.unfreeze.clear();
  const Prepared alone = prepared_for(config);
  EXPECT_TRUE(is_trained(alone, "head.weight"));
  EXPECT_FALSE(is_trained(alone, "head.input_scale"));
  const Task replica = alone.fit.make_task(config);
  EXPECT_FALSE(replica.module->named_parameters()["head.input_scale"].requires_grad());

  config.quantize = {};
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { (void)prepared_for(config); }),
                         "[model] freeze");
  config.quantize.scheme = "static";
  config.quantize.keep = {"head.*"};
  config.model.freeze = {"head.input_scale"};
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { (void)prepared_for(config); }),
                         "head.input_scale");
}

// The table unfreezes the scale of a weight that stays frozen.
TEST(QatFreezing, of_a_scale_alone_ends_when_its_table_says_so_and_no_table_is_without_effect) {
  auto config = short_static_config();
  config.model.freeze = {"head.weight", "head.input_scale"};
  config.model.unfreeze = {{{"head.input_scale"}, 0}};
  const Prepared from_start = prepared_for(config);
  EXPECT_FALSE(is_trained(from_start, "head.weight"));
  EXPECT_TRUE(is_trained(from_start, "head.input_scale"));
  config.model.unfreeze = {{{"head.input_scale"}, 1}};
  const Prepared later = prepared_for(config);
  EXPECT_FALSE(is_trained(later, "head.input_scale"));
  ASSERT_EQ(later.plan.freeze.unfreezes.size(), 1u);
  EXPECT_EQ(later.plan.freeze.unfreezes[0].parameters,
            (std::vector<std::string>{"head.input_scale"}));

  config.model.freeze = {"head.*"};
  for (const int64_t step : {0, 5}) {
    config.model.unfreeze = {{{"head.input_scale"}, step}};
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { (void)prepared_for(config); }),
                           "is unfrozen with its weight");
  }
  config.model.unfreeze = {{{"head.input_scale", "head.weight"}, 5}};
  EXPECT_EQ(prepared_for(config).plan.freeze.unfreezes.at(0).parameters.size(), 2u);
}

TEST(QatPlan, warns_of_an_optimizer_that_moves_scales_by_its_rate) {
  auto config = short_static_config();
  const auto warning = [&] { return line_of(prepared_for(config).plan, "quantize.scales"); };
  ASSERT_TRUE(warning());
  TANREN_EXPECT_CONTAINS(warning()->reason, "learning_rate_scale");
  config.optimizer.groups = {{{"*"}, 0.5, std::nullopt}};  // of the weights, too
  EXPECT_TRUE(warning());
  config.optimizer.groups = {{{"*.input_scale"}, 0.1, std::nullopt}};
  EXPECT_FALSE(warning());
  config.optimizer.groups.clear();
  config.optimizer.kind = "sgd";
  EXPECT_FALSE(warning());
}

TEST(QatPlan, names_the_layers_whose_inputs_never_vary) {
  const auto config = short_static_config("mlp");
  const auto data = open_dataset(config.data.train, "data.train");
  Plan plan;
  plan.quantize = {.scheme = QuantizeScheme::calibrated, .samples = 32};
  for (const bool is_constant : {false, true}) {
    const Task plain = build_task(config, ModelRegistry(), *data);
    const FakeQuantization how = find_quantization(plain, config, *data);
    (void)fake_quantized(plain, how);
    ASSERT_EQ(how.layers.size(), 3u);
    if (is_constant) {  // what the second and the third layer read is 0
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : plain.module->parameters()) {
        if (parameter.numel() > 1) parameter.detach().zero_();
      }
    }
    const auto line = begin_quantized(plain, how, plan, *data);
    ASSERT_EQ(line.has_value(), is_constant);
    if (!is_constant) continue;
    TANREN_EXPECT_CONTAINS(line->reason, "one number alone in the 32 samples");
    EXPECT_EQ(std::count(line->value.begin(), line->value.end(), ','), 1) << line->value;
    EXPECT_EQ(line->value.find(how.layers[0].name), std::string::npos) << line->value;
  }
}

// Predictions use a tied weight as an embedding. A loss of the training reads it linearly.
struct TiedInTraining : torch::nn::Module {
  TiedInTraining() {
    tied = register_parameter("tied", at::randn({10, 8}));
    head = register_parameter("head", at::randn({3, 8}));
  }
  at::Tensor tied, head;
};

TEST(QatPlan, keeps_a_tied_weight_that_no_prediction_reads_linearly_if_its_input_needs_a_range) {
  auto config = short_static_config("gpt2");
  config.data.train.fields = {"inputs: int[7] in [0, 9]", "labels: int[7] in [0, 9]"};
  const auto data = open_dataset(config.data.train, "data.train");
  const auto module = std::make_shared<TiedInTraining>();
  Task plain;
  plain.module = module;
  plain.predict = [module](const Batch& batch) {
    const at::Tensor y = at::linear(at::embedding(module->tied, batch["inputs"]), module->head);
    return Prediction{{{"sum", y.sum()}}, y, batch["inputs"]};
  };
  plain.phases = {PhaseSpec{.forward = [module](const Batch& batch) {
    const at::Tensor rows = at::embedding(module->tied, batch["inputs"]);
    const at::Tensor sum = at::linear(rows, module->tied).sum();
    return Terms{{"sum", sum + at::linear(rows, module->head).sum()}};
  }}};
  Plan plan;
  plan.quantize = {.scheme = QuantizeScheme::calibrated, .samples = 32};
  const FakeQuantization how = find_quantization(plain, config, *data);
  ASSERT_EQ(how.layers.size(), 1u);
  EXPECT_EQ(how.layers[0].name, "head");
  TANREN_EXPECT_CONTAINS(how.kept.at("tied"), "in training alone");
  (void)fake_quantized(plain, how);
  EXPECT_NO_THROW((void)begin_quantized(plain, how, plan, *data));
  EXPECT_FALSE(module->named_parameters().contains("tied_input_scale"));
  config.quantize.scheme = "dynamic";
  EXPECT_EQ(find_quantization(plain, config, *data).layers.size(), 2u);
}

// Sharing a buffer between ranks writes to it, and a zero point that was written is read again from
// the device.
TEST(QatRanks, share_no_zero_points) {
  const auto config = short_static_config();
  const auto data = open_dataset(config.data.train, "data.train");
  const Task plain = build_task(config, ModelRegistry(), *data);
  const FakeQuantization how = find_quantization(plain, config, *data);
  const Task task = fake_quantized(plain, how);
  const TinyRun run(config, data.get(), task);
  int64_t shared = 0;
  for (const Objective& objective : run.state.phases.front().objectives) {
    for (const ObjectiveBuffer& buffer : objective.buffers) {
      ++shared;
      for (const auto& [name, tensor] : tensors_of(*task.module)) {
        if (!name.ends_with("input_zero_point")) continue;
        EXPECT_FALSE(tensor.is_same(buffer.tensor)) << name;
      }
    }
  }
  EXPECT_GT(shared, 0) << "the norms' statistics";
}

}  // namespace
}  // namespace tanren::testing
