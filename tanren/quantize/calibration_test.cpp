#include "tanren/quantize/calibration.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/quantize/range_tracker.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;

// Reads its weights in all the ways in which models do.
struct ReadingModel : torch::nn::Module {
  at::Tensor table, conv, in, middle, projection, out, unused;
  // The inputs that in, middle, out, conv and projection read, over all forwards.
  std::vector<at::Tensor> read = std::vector<at::Tensor>(5);
  bool seen_training = false;

  ReadingModel() {
    at::manual_seed(5);
    table = add("table", {9, 4});
    conv = add("conv", {4, 3, 3, 3});
    in = add("in", {6, 4});
    middle = add("middle", {6, 6});  // square: t() has its sizes
    projection = add("projection", {6, 6});
    out = add("out", {5, 6});
    unused = add("unused", {5, 6});
  }
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& images) {
    seen_training = seen_training || is_training();
    keep(3, images);
    const at::Tensor planes = at::conv2d(images, conv, {}, 1, 1).relu().mean({2, 3});
    const at::Tensor rows = at::embedding(table, ids) + planes.unsqueeze(1);  // [n, 2, 4]
    keep(0, rows);
    const at::Tensor first = at::linear(rows, in).relu();
    keep(1, first.view({-1, 6}));
    const at::Tensor second = at::addmm(at::ones({6}), first.view({-1, 6}), middle.t());
    keep(4, second);
    const at::Tensor third = at::matmul(second, projection).tanh();
    // A product in another form, whose factor is not what the layer reads.
    const at::Tensor fourth = third + at::matmul(1000 * third, middle) * 1e-9;
    keep(2, fourth);
    return at::matmul(fourth, out.t());
  }

 private:
  at::Tensor add(const std::string& layer, at::IntArrayRef sizes) {
    const auto owner = register_module(layer, std::make_shared<torch::nn::Module>());
    return owner->register_parameter("weight", at::randn(sizes));
  }
  void keep(size_t of, const at::Tensor& x) {
    const at::Tensor flat = x.flatten();
    read[of] = read[of].defined() ? at::cat({read[of], flat}) : flat;
  }
};

struct ReadingTask {
  std::shared_ptr<ReadingModel> model = std::make_shared<ReadingModel>();
  WeightReaders readers = {{"table.weight", WeightReader::embedding},
                           {"conv.weight", WeightReader::convolution},
                           {"in.weight", WeightReader::linear},
                           {"middle.weight", WeightReader::linear},
                           {"projection.weight", WeightReader::projection},
                           {"out.weight", WeightReader::linear}};
  at::Tensor outputs;

  Task task() {
    Task task;
    task.module = model;
    task.predict = [this](const Batch& batch) {
      outputs = model->forward(batch["ids"], batch["images"]);
      return Prediction{.terms = {}, .outputs = outputs, .targets = {}};
    };
    return task;
  }
  static Batch batch(int64_t n) {
    at::manual_seed(6);
    Batch batch;
    batch.ids = at::arange(n);
    batch.fields.set("ids", at::arange(2 * n).remainder(9).view({n, 2}));
    batch.fields.set("images", at::randn({n, 3, 5, 5}) + 1);
    return batch;
  }
};

InputScale range_of(const at::Tensor& x, RangeKind kind) {
  RangeTracker tracker(kind, "x");
  tracker.add(x);
  return tracker.scale();
}

void expect_scale(const InputScale& got, const InputScale& expected, const std::string& name) {
  EXPECT_EQ(got.scale, expected.scale) << name;
  EXPECT_EQ(got.zero_point, expected.zero_point) << name;
}

TEST(Calibration, refuses_too_few_samples_unread_weights_and_unknown_names) {
  ReadingTask reading;
  reading.readers.emplace("unused.weight", WeightReader::linear);
  Calibration calibration(reading.task(), reading.readers, RangeKind::mse);
  calibration.predict(ReadingTask::batch(7));
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { (void)calibration.inputs(); }),
                         "7 samples to calibrate with; give at least 8");
  calibration.predict(ReadingTask::batch(1));
  EXPECT_EQ(calibration.num_samples(), 8);
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { (void)calibration.inputs(); }),
                         "no layer read unused.weight while 8 samples were predicted");
  reading.readers.emplace("absent", WeightReader::linear);
  TANREN_EXPECT_CONTAINS(
      error_of<Error>([&] { Calibration(reading.task(), reading.readers, RangeKind::mse); }),
      "no parameter absent");
}

TEST(Calibration, names_the_weight_whose_layer_reads_what_is_not_finite) {
  ReadingTask reading;
  {
    const at::NoGradGuard no_grad;
    reading.model->in[2][1] = std::numeric_limits<float>::quiet_NaN();
  }
  Calibration calibration(reading.task(), reading.readers, RangeKind::minmax);
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { calibration.predict(ReadingTask::batch(9)); }),
                         "the input of middle.weight has a number that is not finite");
}

TEST(Calibration, names_the_weights_whose_layers_read_one_number_alone) {
  ReadingTask reading;
  Batch batch = ReadingTask::batch(9);
  batch.fields.set("images", at::full({9, 3, 5, 5}, 0.25));
  Calibration calibration(reading.task(), reading.readers, RangeKind::mse);
  calibration.predict(batch);
  EXPECT_EQ(calibration.with_constant_input(), std::vector<std::string>{"conv.weight"});
  calibration.predict(ReadingTask::batch(9));
  EXPECT_EQ(calibration.with_constant_input(), std::vector<std::string>{});
}

TEST(Calibration, refuses_weights_that_are_views_of_one_buffer) {
  ReadingTask reading;
  const at::Tensor buffer = at::randn({60});
  {
    const at::NoGradGuard no_grad;
    reading.model->in.set_data(buffer.slice(0, 0, 24).view({6, 4}));
    reading.model->out.set_data(buffer.slice(0, 24, 54).view({5, 6}));
  }
  TANREN_EXPECT_CONTAINS(
      error_of<Error>([&] { Calibration(reading.task(), reading.readers, RangeKind::mse); }),
      "out.weight and in.weight share their memory; give each its own");
}

TEST(Calibration, gives_each_layer_the_range_of_what_it_read) {
  for (const auto kind : {RangeKind::minmax, RangeKind::mse}) {
    ReadingTask reading;
    Calibration calibration(reading.task(), reading.readers, kind);
    calibration.predict(ReadingTask::batch(9));
    calibration.predict(ReadingTask::batch(4));
    const auto inputs = calibration.inputs();
    ASSERT_EQ(inputs.size(), 5u);  // the table's indices have none
    const auto& read = reading.model->read;
    expect_scale(inputs.at("in.weight"), range_of(read[0], kind), "in");
    expect_scale(inputs.at("middle.weight"), range_of(read[1], kind), "middle");
    expect_scale(inputs.at("out.weight"), range_of(read[2], kind), "out");
    expect_scale(inputs.at("conv.weight"), range_of(read[3], kind), "conv");
    expect_scale(inputs.at("projection.weight"), range_of(read[4], kind), "projection");
  }
}

TEST(Calibration, changes_no_number_and_leaves_the_model_in_its_mode) {
  ReadingTask plain;
  plain.model->eval();
  (void)plain.task().predict(ReadingTask::batch(9));
  ReadingTask reading;
  ASSERT_TRUE(reading.model->is_training());
  Calibration calibration(reading.task(), reading.readers, RangeKind::mse);
  calibration.predict(ReadingTask::batch(9));
  EXPECT_TRUE(at::equal(reading.outputs, plain.outputs.detach()));
  EXPECT_FALSE(reading.outputs.requires_grad());
  EXPECT_FALSE(reading.model->seen_training);
  EXPECT_TRUE(reading.model->is_training());
}

TEST(Calibration, takes_all_parts_of_a_prediction_in_rows) {
  ReadingTask reading;
  Task task = reading.task();
  task.predict_rows = [model = reading.model](const Batch& batch) {
    return PredictionRows{
        .rows = batch.size(), .at_once = 4, .part = [=](int64_t from, int64_t to) {
          return Prediction{.terms = {},
                            .outputs = model->forward(batch["ids"].slice(0, from, to),
                                                      batch["images"].slice(0, from, to)),
                            .targets = {}};
        }};
  };
  Calibration calibration(task, reading.readers, RangeKind::minmax);
  calibration.predict(ReadingTask::batch(10));
  EXPECT_EQ(reading.model->read[3].numel(), 10 * 3 * 5 * 5);
  expect_scale(calibration.inputs().at("conv.weight"),
               range_of(ReadingTask::batch(10)["images"], RangeKind::minmax), "conv");
}

TEST(QuantizedParameters, are_those_that_the_scheme_takes) {
  const ReadingTask reading;
  const auto& module = *reading.model;
  InputScales inputs;
  for (const auto& [name, reader] : reading.readers)
    inputs[name] = {.scale = 0.5F, .zero_point = 3};
  const auto fixed =
      quantized_parameters(module, reading.readers, QuantizeScheme::calibrated, inputs);
  EXPECT_EQ(fixed.size(), 6u);
  EXPECT_FALSE(fixed.at("table.weight").input.has_value());
  EXPECT_EQ(fixed.at("conv.weight").input.value().zero_point, 3);
  EXPECT_EQ(fixed.at("in.weight").input.value().scale, 0.5F);
  EXPECT_EQ(fixed.at("conv.weight").reader, WeightReader::convolution);
  const QuantizedWeight weight = quantize_weight(module.out, "out");
  EXPECT_TRUE(at::equal(fixed.at("out.weight").weight.values, weight.values));
  EXPECT_TRUE(at::equal(fixed.at("out.weight").weight.scales, weight.scales));
  const QuantizedWeight turned = quantize_weight(module.projection.t(), "projection");
  EXPECT_TRUE(at::equal(fixed.at("projection.weight").weight.values, turned.values));

  const auto dynamic = quantized_parameters(module, reading.readers, QuantizeScheme::dynamic);
  EXPECT_EQ(dynamic.size(), 5u);
  EXPECT_EQ(dynamic.count("conv.weight"), 0u);
  EXPECT_FALSE(dynamic.at("in.weight").input.has_value());
  const auto alone = quantized_parameters(module, reading.readers, QuantizeScheme::weights);
  EXPECT_EQ(alone.size(), 6u);
  for (const auto& [name, of] : alone) EXPECT_TRUE(of.is_weight_alone) << name;
  for (const auto* others : {&fixed, &dynamic}) {
    for (const auto& [name, of] : *others) EXPECT_FALSE(of.is_weight_alone) << name;
  }
  EXPECT_TRUE(quantized_parameters(module, reading.readers, QuantizeScheme::none).empty());

  inputs.erase("conv.weight");
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] {
                           (void)quantized_parameters(module, reading.readers,
                                                      QuantizeScheme::calibrated, inputs);
                         }),
                         "conv.weight has no scale of its input");
}

TEST(QuantizedParameters, refuses_weights_of_other_dtypes) {
  const ReadingTask reading;
  reading.model->to(at::kDouble);
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           (void)quantized_parameters(*reading.model, reading.readers,
                                                      QuantizeScheme::dynamic);
                         }),
                         "has dtype Double; give fp32 or bf16 weights");
}

TEST(QuantizedParameters, keep_leaves_out_what_a_pattern_matches_and_refuses_one_without_a_match) {
  ReadingTask reading;
  const auto found = find_readers(reading.task(), ReadingTask::batch(2));
  const auto all = weights_to_quantize(found, {});
  EXPECT_EQ(all.count("unused.weight") + all.count("middle.weight"), 0u);  // read in two ways
  EXPECT_EQ(all.at("projection.weight"), WeightReader::projection);
  EXPECT_EQ(all.at("conv.weight"), WeightReader::convolution);
  EXPECT_EQ(all.size(), 5u);
  const auto alias = std::make_shared<torch::nn::Module>();
  alias->register_parameter("weight", reading.model->in);
  reading.model->register_module("alias", alias);
  const auto again = find_readers(reading.task(), ReadingTask::batch(2));
  EXPECT_EQ(weights_to_quantize(again, {}).count("alias.weight"), 1u);
  for (const char* name : {"in.weight", "alias.weight"}) {
    const auto kept = weights_to_quantize(again, {name});
    EXPECT_EQ(kept.count("in.weight") + kept.count("alias.weight"), 0u) << name;
  }
  const auto left = weights_to_quantize(found, {"in.*", "unused.weight"});
  EXPECT_EQ(left.size(), 4u);
  EXPECT_EQ(left.count("in.weight"), 0u);
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { (void)weights_to_quantize(found, {"oot.*"}); }),
      "[quantize] keep \"oot.*\" matches no parameter");
}

}  // namespace
}  // namespace tanren
