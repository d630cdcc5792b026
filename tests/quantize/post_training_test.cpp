// Post-training quantisation as a whole: a trained model's file in, one with 8-bit weights and its
// report out; what is put back, kept and refused.
#include "tanren/post_training/quantize_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/config/read_config.h"
#include "tanren/interop/export.h"
#include "tanren/interop/whole_model.h"
#include "tanren/model/supervised.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/post_training/eight_bit_task.h"
#include "tanren/post_training/layer_choice.h"
#include "tanren/post_training/quantize_model.h"
#include "tanren/quantize/calibration.h"
#include "tanren/run/run.h"
#include "tanren/run/run_folder.h"
#include "tanren/train/build.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

// Points near the corners of a cube, one class a corner.
std::string corners(int64_t rows) {
  std::string text = "label,a,b,c\n";
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = i % 3;
    text += std::to_string(label);
    for (int64_t axis = 0; axis < 3; ++axis) {
      const double near = 0.03 * static_cast<double>((7 * i + 3 * axis) % 11 - 5);
      text += "," + std::to_string((axis == label ? 1.0 : 0.0) + near);
    }
    text += "\n";
  }
  return text;
}

// A module of a user: two linear layers.
class TwoLayers : public torch::nn::Module {
 public:
  TwoLayers(int64_t width, bool has_bias)
      : body(register_module("body",
                             torch::nn::Linear(torch::nn::LinearOptions(3, width).bias(has_bias)))),
        head(register_module(
            "head", torch::nn::Linear(torch::nn::LinearOptions(width, 3).bias(has_bias)))) {}
  at::Tensor forward(const at::Tensor& x) { return head(at::relu(body(x))); }

  torch::nn::Linear body, head;
};

ModelRegistry own_models() {
  ModelRegistry models;
  models.add("two_layers", [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<TwoLayers>(8, true), options, info);
  });
  return models;
}

// 64 samples whose inputs are the corners themselves; `spoilt` stands in for one number.
class Corners : public Dataset {
 public:
  explicit Corners(int64_t size = 64, float spoilt = 0) : size_(size), spoilt_(spoilt) {}
  int64_t size() const override { return size_; }
  DataInfo info() const override { return {.input_shape = {3}, .outputs = 3}; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated made;
    made.batch.ids = ids_of(indices);
    const at::Tensor labels = made.batch.ids % 3;
    at::Tensor inputs = at::one_hot(labels, 3).to(at::kFloat);
    inputs += at::where(made.batch.ids == 5, spoilt_, 0.F).unsqueeze(1);
    made.batch.fields.set("inputs", inputs);
    made.batch.fields.set("labels", labels);
    made.counts["samples"] = static_cast<double>(indices.size());
    return made;
  }

 private:
  int64_t size_;
  float spoilt_;
};

std::vector<Collated> batches_of(const Dataset& dataset) {
  std::vector<Collated> batches;
  for (int64_t i = 0; i < dataset.size(); i += 16) {
    std::vector<int64_t> indices;
    for (int64_t j = i; j < std::min(i + 16, dataset.size()); ++j) indices.push_back(j);
    batches.push_back(dataset.collate(indices));
  }
  return batches;
}

// One weight of its head is so large that 8 bits leave nothing of the other weights of its channel.
// The input of the large weight is always 0.
Task with_a_bad_head() {
  const auto module = std::make_shared<TwoLayers>(4, false);
  const at::NoGradGuard no_grad;
  module->body->weight.zero_();
  module->head->weight.zero_();
  for (int64_t i = 0; i < 3; ++i) module->body->weight[i][i] = module->head->weight[i][i] = 1;
  module->head->weight.select(1, 3).fill_(1e4);
  module->eval();
  return supervised(module, ModelOptions(), Corners().info());
}

const QuantizeMetric kAccuracy{"accuracy", false, true};

TEST(PostTraining, puts_the_worst_layer_back_and_stops_within_the_tolerance) {
  const Task task = with_a_bad_head();
  for (const QuantizeScheme scheme : {QuantizeScheme::dynamic, QuantizeScheme::calibrated}) {
    PostTraining training(task, batches_of(Corners()), {}, kAccuracy, {});
    const SchemeWeights made = training.weights(scheme, /*wants_errors=*/true);
    EXPECT_EQ(made.layers_kept, 1);
    ASSERT_EQ(made.parameters.size(), 1u);
    EXPECT_EQ(made.parameters.begin()->first, "body.weight");
    EXPECT_EQ(made.kept.at("head.weight"), "worst first");
    ASSERT_EQ(made.layers.size(), 2u);
    const LayerResult &body = made.layers[0], &head = made.layers[1];
    EXPECT_TRUE(body.is_8_bit);
    EXPECT_FALSE(head.is_8_bit);
    ASSERT_TRUE(body.error && head.error);
    EXPECT_LT(*body.error, 0.01);
    EXPECT_NEAR(*head.error, 1, 0.01) << "all of the outputs are lost";
    EXPECT_EQ(body.share, 0.5);
    EXPECT_EQ(body.input_range.has_value(), scheme == QuantizeScheme::calibrated);
    const auto named = task.module->named_parameters();
    EXPECT_EQ(named["head.weight"][0][3].item<float>(), 1e4F) << "the module has its own again";
    EXPECT_TRUE(named["head.weight"].requires_grad() && named["body.weight"].requires_grad());
  }
}

// All schemes are measured on one module, each within its turn.
TEST(PostTraining, several_8_bit_tasks_of_a_module_leave_it_its_weights) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  const Task task = supervised(std::make_shared<TwoLayers>(8, true), {}, Corners().info());
  const TensorMap own = tensors_of(*task.module);
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, tensor] : own) before[name] = tensor.clone();
  const auto weights_of = [&](const WeightReaders& readers) {
    return quantized_parameters(*task.module, readers, QuantizeScheme::dynamic);
  };
  const WeightReaders both = {{"body.weight", WeightReader::linear},
                              {"head.weight", WeightReader::linear}};
  const EightBitTask first(task, weights_of(both)), second(task, weights_of({*both.rbegin()})),
      third(task, weights_of(both));
  const Batch batch = Corners().collate({0, 1, 2, 3}).batch;
  task.module->eval();
  const at::Tensor plain = task.predict(batch).outputs;
  std::vector<at::Tensor> outputs;
  for (const EightBitTask* one : {&first, &second, &third, &second, &first}) {
    const EightBitTask::Scope scope(*one);
    outputs.push_back(one->task().predict(batch).outputs);
    EXPECT_LT((outputs.back() - plain).abs().max().item<double>(), 0.1);
  }
  EXPECT_TRUE(at::equal(outputs[0], outputs[4]) && at::equal(outputs[1], outputs[3]));
  EXPECT_TRUE(at::equal(outputs[0], outputs[2]));
  EXPECT_FALSE(at::equal(outputs[0], outputs[1]));
  for (const auto& [name, tensor] : tensors_of(*task.module)) {
    EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
  }
}

TEST(PostTraining, puts_nothing_back_that_a_wide_tolerance_allows) {
  QuantizeOptions wide;
  wide.tolerance = 100;
  PostTraining training(with_a_bad_head(), batches_of(Corners()), wide, kAccuracy, {});
  const SchemeWeights made = training.weights(QuantizeScheme::dynamic, /*wants_errors=*/false);
  EXPECT_EQ(made.parameters.size(), 2u);
  EXPECT_EQ(made.layers_kept, 0);
  EXPECT_FALSE(made.layers[1].error) << "nobody asked";
}

TEST(PostTraining, names_the_layer_that_reads_numbers_that_are_not_finite) {
  PostTraining training(with_a_bad_head(), batches_of(Corners(64, std::nanf(""))), {}, kAccuracy,
                        {});
  TANREN_EXPECT_CONTAINS(
      error_of<InputError>([&] { (void)training.weights(QuantizeScheme::calibrated, false); }),
      "body.weight");
}

TEST(PostTraining, takes_constant_inputs_and_channels_of_zeros) {
  const auto module = std::make_shared<TwoLayers>(4, true);
  {
    const at::NoGradGuard no_grad;
    module->body->weight.zero_();  // so that the head reads one number alone
    module->body->bias.fill_(0.5);
  }
  module->eval();
  const Task task = supervised(module, ModelOptions(), Corners().info());
  QuantizeOptions wide;
  wide.tolerance = 100;
  PostTraining training(task, batches_of(Corners()), wide, kAccuracy, {});
  const SchemeWeights made = training.weights(QuantizeScheme::calibrated, /*wants_errors=*/true);
  ASSERT_EQ(made.parameters.size(), 2u);
  EXPECT_EQ(*made.layers[0].error, 0) << "zeros are exact";
  EXPECT_LT(*made.layers[1].error, 1e-3);
  EXPECT_EQ(training.with_constant_input(), std::vector<std::string>{"head.weight"});
}

TEST(PostTraining, refuses_few_samples_patterns_without_a_match_and_tasks_without_predict) {
  const auto refusal = [](Task task, int64_t samples, std::vector<std::string> keep) {
    QuantizeOptions asked;
    asked.keep = std::move(keep);
    return error_of<InputError>(
        [&] { PostTraining(std::move(task), batches_of(Corners(samples)), asked, kAccuracy, {}); });
  };
  TANREN_EXPECT_CONTAINS(refusal(with_a_bad_head(), 7, {}),
                         "7 samples to calibrate with; give at least 8");
  TANREN_EXPECT_CONTAINS(refusal(with_a_bad_head(), 8, {"haed.*"}), "haed.*");
  Task mute = with_a_bad_head();
  mute.predict = nullptr;
  TANREN_EXPECT_CONTAINS(refusal(mute, 8, {}), "the task has no predict");
}

// Remembers which samples were asked for.
class SeenCorners : public Corners {
 public:
  Collated collate(const std::vector<int64_t>& indices) const override {
    seen.insert(indices.begin(), indices.end());
    return Corners::collate(indices);
  }
  mutable std::set<int64_t> seen;
};

TEST(PostTraining, in_a_program_calibrates_on_samples_as_far_apart_as_they_can_be) {
  const SeenCorners samples;
  WholeModel model;
  model.task = with_a_bad_head();
  QuantizeOptions options;
  options.scheme = "static";
  options.samples = 8;
  options.tolerance = 100;
  quantize(model, samples, options);
  EXPECT_EQ(samples.seen, (std::set<int64_t>{0, 8, 16, 24, 32, 40, 48, 56}));
  EXPECT_EQ(model.quantized.samples, 8);
}

class QuantizedRuns : public ::testing::Test {
 protected:
  // Trains a model with these lines of its section; returns the run's folder.
  fs::path trained(const std::string& model, const Registry& registry = {},
                   const std::string& more = "") const {
    folder_.file("train.csv", corners(96));
    folder_.file("eval.csv", corners(48));
    const std::string data = "kind = \"csv\"\nclasses = 3\n";
    const auto config = parse_config(
        "[model]\n" + model + "\n[data.train]\npath = \"train.csv\"\n" + data + more +
            "[data.eval]\npath = \"eval.csv\"\n" + data + more +
            "[batch]\nglobal_batch = 32\n[precision]\nmode = \"fp32\"\n[optimizer]\n"
            "learning_rate = 0.02\n[run]\nname = \"q\"\nsteps = 60\nthreads = 1\nseed = 5\n",
        "q.toml", folder_.path(), {}, registry.known());
    run({.config = config, .folder = folder_.path() / "run"}, registry);
    return folder_.path() / "run";
  }
  fs::path mlp() const { return trained("kind = \"mlp\"\nhidden = [16, 16]"); }

  std::string refusal(const fs::path& model, const std::vector<std::string>& sets,
                      const fs::path& data = {}) const {
    return error_of<InputError>([&] {
      (void)quantize_file({.model = model, .data = data, .out = at("refused"), .sets = sets}, {});
    });
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }

  testing::TemporaryFolder folder_;
};

const SchemeResult& result_of(const QuantizeReport& report, const std::string& name) {
  for (const SchemeResult& scheme : report.schemes) {
    if (scheme.name == name) return scheme;
  }
  ADD_FAILURE() << name << " is not there";
  return report.schemes.front();
}

TEST_F(QuantizedRuns, of_an_mlp_are_measured_and_the_cheapest_is_written) {
  const fs::path run = mlp();
  const QuantizeReport report = quantize_file({.model = run}, {});
  ASSERT_EQ(report.schemes.size(), 5u);
  EXPECT_EQ(report.metric, "accuracy");
  EXPECT_EQ(report.calibration_samples, 96);
  EXPECT_EQ(report.evaluated_samples, 48);
  EXPECT_GT(result_of(report, "fp32").metric, 0.9) << "the run learns";
  const SchemeResult& written = result_of(report, report.written);
  EXPECT_TRUE(written.is_written && written.is_within_tolerance && written.difference);
  EXPECT_LT(written.tensor_bytes, result_of(report, "fp32").tensor_bytes / 2);
  EXPECT_GT(written.peak_bytes, 0);
  EXPECT_EQ(result_of(report, "fp32").ratio_8->median, 1);
  for (const char* name : {"fp32", "weights", "dynamic", "static"}) {
    EXPECT_GT(result_of(report, name).seconds_1->lowest, 0) << name;
  }
  const SchemeResult& bf16 = result_of(report, "bf16");
  EXPECT_EQ(bf16.seconds_1.has_value(), probe_machine().cpu_bf16);
  EXPECT_EQ(bf16.not_measured.empty(), probe_machine().cpu_bf16);

  const fs::path file = run / "quantized" / kWholeFile;
  EXPECT_EQ(report.file, file.string());
  int64_t bytes = 0;
  for (const auto& [name, tensor] : read_safetensors(file).tensors) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  EXPECT_EQ(written.tensor_bytes, bytes);
  const auto again = evaluate_whole_model(file, at("eval.csv"), {}, Registry(), nullptr);
  EXPECT_EQ(value_in(again.report, kAccuracy), written.metric);
  const QuantizeNote note = load_model(file).quantized;
  EXPECT_EQ(note.scheme, report.written);
  EXPECT_EQ(note.samples, 96);
  EXPECT_EQ(note.readers.size(), 3u);
  const auto json = nlohmann::json::parse(read_file(run / "quantized" / "quantize.json"));
  EXPECT_EQ(json["written"], report.written);
  EXPECT_TRUE(fs::exists(run / "quantized" / "quantize.txt"));
  EXPECT_TRUE(fs::exists(run / "quantized" / "quantize.html"));

  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { (void)quantize_file({.model = run}, {}); }),
                         "is there; replace it with --force, or name another folder with --out");
  TANREN_EXPECT_CONTAINS(refusal(file, {}, at("eval.csv")), "has 8-bit weights already");
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { (void)quantize_file({.model = run, .out = run}, {}); }),
      "has the model itself, or is the folder of a run");
  EXPECT_FALSE(fs::exists(at("refused")));
}

TEST_F(QuantizedRuns, of_a_convnet_fold_norms_and_keep_what_is_asked) {
  const fs::path run =
      trained("kind = \"convnet\"\nchannels = [4, 8]\nnorm = \"batch\"", {}, "shape = [1, 1, 3]\n");
  const QuantizeReport report =
      quantize_file({.model = run,
                     .out = at("static"),
                     .sets = {"quantize.scheme=static", "quantize.keep=[\"head.*\"]",
                              "quantize.samples=32", "quantize.tolerance=100"}},
                    {});
  ASSERT_EQ(report.schemes.size(), 3u);
  EXPECT_EQ(report.written, "static");
  EXPECT_EQ(report.calibration_samples, 32);
  const fs::path file = at("static") / kWholeFile;
  const SafetensorsFile read = read_safetensors(file);
  EXPECT_EQ(read.tensors.at("head.weight").scalar_type(), at::kFloat);
  int64_t folded = 0, eight_bit = 0;
  for (const auto& [name, tensor] : read.tensors) {
    if (name.ends_with("running_mean") && tensor.abs().sum().item<float>() == 0) ++folded;
    if (tensor.scalar_type() == at::kChar && tensor.dim() == 4) ++eight_bit;
  }
  EXPECT_GT(folded, 0);
  EXPECT_GT(eight_bit, 2);
  EXPECT_EQ(load_model(file).quantized.kept.at("head.weight"), "keep");
  for (const LayerResult& layer : report.layers) {
    if (layer.name != "head.weight") continue;
    EXPECT_FALSE(layer.is_8_bit);
    EXPECT_EQ(layer.why, "keep");
  }
  const auto again = evaluate_whole_model(file, at("eval.csv"), {}, Registry(), nullptr);
  EXPECT_EQ(value_in(again.report, kAccuracy), result_of(report, "static").metric);
}

TEST_F(QuantizedRuns, a_whole_model_calibrates_on_the_first_of_the_data_and_is_judged_on_the_rest) {
  const fs::path file = mlp() / kWholeFile;
  const QuantizeReport report =
      quantize_file({.model = file,
                     .data = at("eval.csv"),
                     .out = at("out"),
                     .sets = {"quantize.samples=16", "quantize.scheme=dynamic"}},
                    {});
  EXPECT_EQ(report.calibration_samples, 16);
  EXPECT_EQ(report.evaluated_samples, 32);
  TANREN_EXPECT_CONTAINS(report.remarks.front(), "the first 16 samples of");
  TANREN_EXPECT_CONTAINS(report.remarks.front(), "are left out of the evaluation");

  TANREN_EXPECT_CONTAINS(refusal(file, {"quantize.samples=16"}), "the data are missing");
  TANREN_EXPECT_CONTAINS(refusal(file, {"quantize.samples=48"}, at("eval.csv")),
                         "has 48 samples; the first 48 calibrate, and none is left that judges");
  TANREN_EXPECT_CONTAINS(refusal(file, {"quantize.samples=7"}, at("eval.csv")),
                         "quantize.samples is 7; it must be at least 8");
  TANREN_EXPECT_CONTAINS(refusal(file, {"precision.mode=fp64"}, at("eval.csv")),
                         "precision.mode is fp64");
  TANREN_EXPECT_CONTAINS(
      refusal(file, {"precision.level=O2", "precision.mode=bf16"}, at("eval.csv")),
      "precision.level is \"O2\"");
  TANREN_EXPECT_CONTAINS(
      refusal(file, {"quantize.samples=16", "quantize.keep=[\"hidden.9.*\"]"}, at("eval.csv")),
      "hidden.9.*");
  TANREN_EXPECT_CONTAINS(refusal(at("train.csv"), {}, at("eval.csv")),
                         "is neither the folder of a run nor a whole model");
  fs::remove(file);
  TANREN_EXPECT_CONTAINS(refusal(file.parent_path(), {}), "which a run writes when it finishes");
  EXPECT_FALSE(fs::exists(at("refused")));
}

TEST_F(QuantizedRuns,
       of_old_exports_and_of_8_bit_trainings_are_refused_before_anything_is_measured) {
  const fs::path place = mlp();
  TANREN_EXPECT_CONTAINS(refusal(place, {"evaluate.checkpoint=best"}), "drop evaluate.checkpoint");
  std::ofstream(at("file")) << "x";
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] {
                           (void)quantize_file({.model = place, .out = at("file/x")}, {});
                         }),
                         "is no folder that this user may write to");
  RunConfig config =
      config_of_folder(place, {"run.steps=200", "run.stop_after=70"}, Registry().known());
  run({.config = config, .folder = place, .requested = {"run.steps"}}, {});
  TANREN_EXPECT_CONTAINS(refusal(place, {}), "went on after its export");

  config = config_of_folder(place, {"quantize.scheme=dynamic", "run.steps=4"}, Registry().known());
  run({.config = config, .folder = at("trained")}, {});
  ASSERT_TRUE(fs::exists(at("trained") / "quantized" / kWholeFile));
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] {
                           (void)quantize_file({.model = at("trained"), .replaces = true}, {});
                         }),
                         "is the place of its own 8-bit model; name another folder with --out");
}

// A sample that no range holds ends only the static scheme. The other schemes continue and have a
// line.
TEST_F(QuantizedRuns, whose_calibration_is_refused_are_measured_with_the_other_schemes) {
  const auto spoilt = std::make_shared<float>(0);
  DatasetRegistry datasets;
  datasets.add("corners", [spoilt](const SourceOptions&, const std::string& what, const DataInfo*) {
    return std::make_unique<Corners>(64, what == "data.train" ? *spoilt : 0);
  });
  const Registry registry(own_models(), datasets);
  const auto config = parse_config(
      "[model]\nkind = \"two_layers\"\n[data.train]\nkind = \"corners\"\n"
      "[data.eval]\nkind = \"corners\"\n[batch]\nglobal_batch = 32\n"
      "[precision]\nmode = \"fp32\"\n[optimizer]\nlearning_rate = 0.02\n"
      "[run]\nname = \"q\"\nsteps = 40\nthreads = 1\nseed = 5\n",
      "q.toml", folder_.path(), {}, registry.known());
  run({.config = config, .folder = at("run")}, registry);
  *spoilt = std::numeric_limits<float>::infinity();
  const QuantizeReport report = quantize_file({.model = at("run")}, registry);
  const SchemeResult& refused = result_of(report, "static");
  TANREN_EXPECT_CONTAINS(refused.not_measured, kRefused);
  TANREN_EXPECT_CONTAINS(refused.not_measured, "has a number that is not finite");
  for (const char* name : {"weights", "dynamic"}) {
    EXPECT_EQ(result_of(report, name).not_measured, "") << name;
    EXPECT_TRUE(result_of(report, name).seconds_8) << name;
  }
  EXPECT_FALSE(report.written.empty());
  TANREN_EXPECT_CONTAINS(
      error_of<InputError>([&] {
        (void)quantize_file(
            {.model = at("run"), .out = at("named"), .sets = {"quantize.scheme=static"}}, registry);
      }),
      "has a number that is not finite");
  EXPECT_FALSE(fs::exists(at("named")));
}

// On a processor with bf16 products, auto would choose another precision.
TEST_F(QuantizedRuns, are_written_in_the_precision_that_was_measured) {
  const fs::path file = mlp() / kWholeFile;
  for (const char* mode : {"fp32", "bf16"}) {
    const fs::path out = at(std::string("in ") + mode);
    (void)quantize_file({.model = file,
                         .data = at("eval.csv"),
                         .out = out,
                         .sets = {"quantize.samples=16", "quantize.scheme=dynamic",
                                  std::string("precision.mode=") + mode}},
                        {});
    EXPECT_EQ(load_model(out / kWholeFile).config.precision.mode, mode);
  }
}

TEST_F(QuantizedRuns, a_module_of_ones_own_is_quantised_in_a_program_and_written) {
  const Registry registry{own_models()};
  const fs::path file = trained("kind = \"two_layers\"", registry) / kWholeFile;
  WholeModel model = load_model(file, registry);
  const auto samples = model.open(at("train.csv"));
  const Batch batch = samples->collate({0, 1, 2, 3, 4}).batch;
  const auto outputs = [&](const WholeModel& of) {
    const at::NoGradGuard no_grad;
    return of.task.predict(batch).outputs;
  };
  const at::Tensor floating = outputs(model);
  QuantizeOptions options;
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { quantize(model, *samples, options); }),
                         "set it to weights, dynamic or static");
  options.scheme = "static";
  quantize(model, *samples, options);
  EXPECT_EQ(model.quantized.readers.size(), 2u);
  EXPECT_EQ(model.quantized.samples, 96);
  const at::Tensor wanted = outputs(model);
  EXPECT_FALSE(at::equal(wanted, floating));
  EXPECT_LT((wanted - floating).abs().max().item<float>(),
            0.1F * floating.abs().max().item<float>());
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { quantize(model, *samples, options); }),
                         "has 8-bit weights already");

  write_whole_model(at("own.safetensors"), model);
  const WholeModel again = load_model(at("own.safetensors"), registry);
  EXPECT_TRUE(at::equal(outputs(again), wanted));
  TANREN_EXPECT_CONTAINS(
      error_of<InputError>([&] { write_whole_model(at("copy.safetensors"), again); }),
      "copy that file");
  const QuantizeReport report =
      quantize_file({.model = file.parent_path(), .out = at("own")}, registry);
  EXPECT_FALSE(report.written.empty());
}

}  // namespace
}  // namespace tanren
