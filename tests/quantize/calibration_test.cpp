// From a model in fp32 to one with 8-bit weights and inputs: norms are folded, weights found and
// inputs calibrated. The models are those of the zoo, and the tested code names none of them.
#include "tanren/quantize/calibration.h"
#include "tanren/quantize/fold.h"
#include "tanren/quantize/quantized_task.h"
#include "tests/support/tiny_run.h"

#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

constexpr int64_t kCalibrated = 30;

struct ZooCase {
  ModelOptions options;
  DataInfo info;
  int64_t num_folded;

  // A task whose norms are as training leaves them.
  Task task(at::ScalarType dtype = at::kFloat) const {
    at::manual_seed(3);
    Task task = ModelRegistry().make(options, info);
    const at::NoGradGuard no_grad;
    for (const auto& item : task.module->named_buffers()) {
      if (item.key().ends_with("running_mean")) item.value().normal_(0, 0.3);
      if (item.key().ends_with("running_var")) item.value().uniform_(0.5, 2);
    }
    task.module->to(dtype);
    task.module->eval();
    return task;
  }
  Batch batch(at::ScalarType dtype = at::kFloat) const {
    at::manual_seed(4);
    std::vector<int64_t> sizes = {kCalibrated};
    sizes.insert(sizes.end(), info.input_shape.begin(), info.input_shape.end());
    Batch batch;
    batch.ids = at::arange(kCalibrated);
    batch.fields.set("inputs", info.vocab_size > 0 ? at::randint(info.vocab_size, sizes, at::kLong)
                                                   : at::randn(sizes).to(dtype));
    batch.fields.set("labels", at::randint(info.outputs, {kCalibrated}, at::kLong));
    return batch;
  }
};

std::vector<ZooCase> zoo_cases() {
  return {{{.kind = "convnet", .channels = {4, 8}, .norm = "batch"},
           {.input_shape = {1, 8, 8}, .outputs = 5},
           5},  // the shortcut has no norm
          {{.kind = "resnet", .size = "resnet18"}, {.input_shape = {3, 32, 32}, .outputs = 5}, 20},
          {{.kind = "bert",
            .num_layers = 2,
            .num_heads = 3,
            .hidden_size = 24,
            .intermediate_size = 40,
            .context_length = 16,
            .task = "classify"},
           {.input_shape = {11}, .outputs = 5, .vocab_size = 37},
           0}};
}

at::Tensor outputs_of(const Task& task, const Batch& batch) {
  const at::NoGradGuard no_grad;
  return task.predict(batch).outputs;
}

InputScales calibrated_in(const ZooCase& one, const std::vector<int64_t>& sizes, RangeKind range) {
  const Task task = one.task();
  const Batch batch = one.batch();
  Calibration calibration(task, weights_to_quantize(find_readers(task, batch), {}), range);
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    calibration.predict(batch.slice(begin, begin + size));
    begin += size;
  }
  EXPECT_EQ(calibration.num_samples(), kCalibrated);
  return calibration.inputs();
}

TEST(CalibratedModels, folding_their_norms_leaves_their_outputs) {
  for (const ZooCase& one : zoo_cases()) {
    SCOPED_TRACE(one.options.kind);
    for (const auto& [dtype, most] : {std::pair(at::kFloat, 1e-5), std::pair(at::kDouble, 1e-12)}) {
      const Task task = one.task(dtype);
      const Batch batch = one.batch(dtype);
      const at::Tensor before = outputs_of(task, batch);
      EXPECT_EQ(std::ssize(fold_batch_norms(task, batch)), one.num_folded);
      EXPECT_LT(relative(outputs_of(task, batch), before), most);
    }
  }
}

TEST(CalibratedModels, the_split_of_the_samples_moves_no_range) {
  for (const ZooCase& one : zoo_cases()) {
    SCOPED_TRACE(one.options.kind);
    const auto whole = calibrated_in(one, {30}, RangeKind::minmax);
    EXPECT_GE(whole.size(), 7u);
    const auto in_parts = calibrated_in(one, {7, 7, 7, 7, 2}, RangeKind::minmax);
    const auto alone = calibrated_in(one, std::vector<int64_t>(30, 1), RangeKind::minmax);
    for (const auto& [name, scale] : whole) {
      for (const auto* other : {&in_parts, &alone}) {
        EXPECT_NEAR(other->at(name).scale, scale.scale, 1e-4 * scale.scale) << name;
        EXPECT_NEAR(other->at(name).zero_point, scale.zero_point, 1) << name;
      }
    }
  }
}

TEST(CalibratedModels, with_8_bit_weights_and_inputs_are_near_those_in_fp32) {
  for (const ZooCase& one : zoo_cases()) {
    for (const auto range : {RangeKind::mse, RangeKind::minmax}) {
      SCOPED_TRACE(one.options.kind + " " + name(range));
      const Task task = one.task();
      const Batch batch = one.batch();
      const at::Tensor expected = outputs_of(task, batch);
      (void)fold_batch_norms(task, batch);
      const auto readers = weights_to_quantize(find_readers(task, batch), {});
      Calibration calibration(task, readers, range);
      calibration.predict(batch);
      const auto quantised =
          quantized(task, quantized_parameters(*task.module, readers, QuantizeScheme::calibrated,
                                               calibration.inputs()));
      const double error = relative(outputs_of(quantised, batch), expected);
      EXPECT_LT(error, 0.15);
      EXPECT_GT(error, 0);  // they are 8-bit
    }
  }
}

}  // namespace
}  // namespace tanren::testing
