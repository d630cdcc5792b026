// The memory that a dry run predicts is what the step then takes, as counted by the allocator.
#include "tests/support/rank_run.h"
#include "tests/support/step_peaks.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/model/resnet.h"
#include "tanren/model/supervised.h"
#include "tanren/model/vgg.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/precision/half_convolution.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <thread>
#include <utility>

namespace tanren::testing {
namespace {

RunConfig small(const std::string& kind, const std::string& mode) {
  auto config = tiny_config(kind);
  set_precision(config, mode);
  config.memory.limit = "16GiB";  // installs our allocator, under a sanitizer too
  config.batch.global_batch = "8";
  config.model.dropout = 0.1;
  if (kind == "gpt2" || kind == "bert" || kind == "lstm") {
    config.model.num_layers = 2;
    config.model.hidden_size = 64;
    config.model.vocab_size = 250;
    if (kind != "lstm") config.model.num_heads = 2;
    config.data.train.fields = {"inputs: int[32] in [0, 49]", kind == "gpt2"
                                                                  ? "labels: int[32] in [0, 49]"
                                                                  : "labels: int[] in [0, 4]"};
    return config;
  }
  config.data.train.fields = {"inputs: float[3,32,32] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.data.train.samples = 16;
  if (kind == "resnet" || kind == "convnet") config.model.dropout.reset();
  if (kind == "vgg") config.batch.global_batch = "4";
  return config;
}

// Resnet and Vgg with fewer weights than any preset: products of 16-bit numbers take long on many
// CPUs, and beside 129 million weights an error in the activations would not be seen.
std::function<Task()> narrow_task(const RunConfig& config) {
  const ModelOptions options = config.model;
  if (options.kind != "resnet" && options.kind != "vgg") return {};
  const DataInfo info = open_dataset(config.data.train, "data.train")->info();
  return [options, info] {
    const MemoryScope memory(MemoryKind::weights);
    at::manual_seed(7);
    if (options.kind == "resnet") {
      const ResnetShape shape{.blocks = {1, 1, 1, 0}, .outputs = num_outputs(options, info)};
      return supervised(std::make_shared<Resnet>(shape), options, info);
    }
    const VggShape shape{.channels = {16, 0, 16, 0, 32, 32, 0, 32, 32, 0, 16, 16, 0},
                         .outputs = num_outputs(options, info),
                         .dropout = options.dropout.value_or(0)};
    return supervised(std::make_shared<Vgg>(shape), options, info);
  };
}

class PredictionTest : public StepPeaksTest {};

struct Case {
  const char* kind;
  const char* mode;
  double tolerance;
};

class PredictionOf : public StepPeaksTest, public ::testing::WithParamInterface<Case> {
 protected:
  void expect(const RunConfig& config, const char* what) const {
    const StepPeaks peaks = step_peaks(config, narrow_task(config));
    std::printf("%-8s %s %-12s predicted %10lld, measured %10lld, %+.2f %%\n", GetParam().kind,
                GetParam().mode, what, static_cast<long long>(peaks.predicted),
                static_cast<long long>(peaks.measured), 100 * peaks.error());
    EXPECT_LE(std::abs(peaks.error()), GetParam().tolerance) << what;
  }
};

TEST_P(PredictionOf, is_what_the_step_takes) {
  auto config = small(GetParam().kind, GetParam().mode);
  expect(config, "whole");
  config.batch.microbatch = 2;
  expect(config, "accumulated");
  config.memory.recompute = {"*"};
  if (config.model.kind == "vgg") config.memory.recompute = {"features.*"};
  expect(config, "recomputed");
  if (config.precision.level == "O3") return;  // which has no such state
  config.optimizer.state = "8bit";
  expect(config, "8-bit state");
}

INSTANTIATE_TEST_SUITE_P(
    Models, PredictionOf,
    ::testing::Values(Case{"mlp", "fp32", 0.005}, Case{"gpt2", "fp32", 0.005},
                      Case{"bert", "fp32", 0.005}, Case{"convnet", "fp32", 0.03},
                      Case{"resnet", "fp32", 0.03}, Case{"vgg", "fp32", 0.03},
                      Case{"lstm", "fp32", 0.03}, Case{"mlp", "bf16", 0.04},
                      Case{"gpt2", "bf16", 0.04}, Case{"bert", "bf16", 0.04},
                      Case{"convnet", "bf16", 0.04}, Case{"resnet", "bf16", 0.04},
                      Case{"vgg", "bf16", 0.04}, Case{"lstm", "bf16", 0.04},
                      Case{"mlp", "O2 bf16", 0.04}, Case{"gpt2", "O2 bf16", 0.04},
                      Case{"bert", "O2 bf16", 0.04}, Case{"resnet", "O2 bf16", 0.04},
                      Case{"vgg", "O3 bf16", 0.04}, Case{"gpt2", "O3 bf16", 0.04}));

// Large weights get their own memory from the allocator, and other kernels multiply them.
TEST_F(PredictionTest, of_a_preset_with_all_its_weights_is_what_the_step_takes) {
  auto config = small("vgg", "fp32");
  config.model.size = "vgg11";
  config.batch.global_batch = "2";
  config.batch.microbatch = 1;
  config.optimizer.state = "8bit";
  const StepPeaks peaks = step_peaks(config);
  EXPECT_LE(std::abs(peaks.error()), 0.03) << peaks.predicted << " " << peaks.measured;
}

TEST_F(PredictionTest, names_the_casts_of_the_weights_that_a_window_keeps) {
  auto config = small("mlp", "bf16");
  config.model.hidden = {256, 256};
  config.data.train.fields = {"inputs: float[256] in [-1, 1]", "labels: int[] in [0, 4]"};
  const auto casts = static_cast<size_t>(MemoryKind::casts);
  // Weights and biases of the two layers and of the head, 2 bytes each.
  const int64_t cast = 2 * (2 * (256 * 256 + 256) + 5 * 256 + 5);
  EXPECT_EQ(step_peaks(config).predicted_kinds.at(casts), cast);
  config.precision.mode = "fp32";
  EXPECT_EQ(step_peaks(config).predicted_kinds.at(casts), 0);
}

// The predicted step has the communicator of one rank, and no other rank takes part.
TEST_F(PredictionTest, is_made_on_any_rank_dry_and_by_real_steps) {
  const auto config = small("mlp", "fp32");
  const auto dataset = open_dataset(config.data.train, "data.train");
  const auto make_task = [&] { return build_task(config, ModelRegistry(), *dataset); };
  install_cpu_allocator();
  for (const int rank : {0, 1}) {
    const Plan plan = rank_plan(config, make_task(), *dataset, rank, /*world_size=*/2);
    for (const bool runs_dry : {true, false}) {
      const StepPredictor predictor(make_task, *dataset, {.runs_dry = runs_dry});
      const MemoryPrediction prediction = predictor.step(plan);
      EXPECT_GT(prediction.peak_bytes, 0) << rank;
      EXPECT_EQ(prediction.is_dry, runs_dry) << rank;
    }
  }
}

TEST_F(PredictionTest, of_twenty_random_shapes_comes_before_the_run_and_is_right) {
  std::mt19937 random(20);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 20; ++i) {
    const std::string kind = i % 2 == 0 ? "gpt2" : "mlp";
    auto config = small(kind, "fp32");
    const int64_t length = draw(8, 96);
    if (kind == "gpt2") {
      config.model.num_layers = draw(1, 4);
      config.model.num_heads = draw(1, 4);
      config.model.hidden_size = config.model.num_heads * 8 * draw(1, 5);
      for (const char* name : {"inputs", "labels"}) {
        config.data.train.fields[name == std::string("labels") ? 1 : 0] =
            std::string(name) + ": int[" + std::to_string(length) + "] in [0, 49]";
      }
    } else {
      config.model.hidden = {draw(4, 400), draw(4, 400)};
    }
    config.data.train.samples = 64;
    config.batch.global_batch = std::to_string(draw(1, 16));
    config.batch.microbatch = draw(0, 4);
    const StepPeaks peaks = step_peaks(config);
    EXPECT_LE(std::abs(peaks.error()), 0.005)
        << kind << " " << i << ": predicted " << peaks.predicted << ", measured " << peaks.measured;
  }
}

TEST(DryScope, tensors_of_any_size_have_no_memory_and_operators_compute_shapes) {
  const TraceScope tracing;
  {
    const DryScope dry;
    const at::Tensor x = at::ones({1'000'000, 1000}), w = at::ones({1000, 3000});
    EXPECT_TRUE(x.is_cpu());
    EXPECT_TRUE(is_dry(x));
    EXPECT_EQ(at::mm(x, w).sizes(), (std::vector<int64_t>{1'000'000, 3000}));
  }
  int64_t live = 0;
  for (const auto& event : tracing.trace()) live += event.bytes;
  EXPECT_EQ(live, 0);
  EXPECT_EQ(tracing.trace().front().bytes, 4'000'000'000);
  EXPECT_FALSE(is_dry(at::ones({3})));
  EXPECT_EQ(at::ones({3}).sum().item<float>(), 3.0F);
}

TEST(DryScope, an_operator_that_it_does_not_know_runs_on_zeros) {
  const DryScope dry;
  const at::Tensor distances = at::cdist(at::ones({500, 3}), at::ones({7, 3}));
  EXPECT_TRUE(is_dry(distances));
  EXPECT_EQ(distances.sizes(), (std::vector<int64_t>{500, 7}));
}

// The threads of a kernel that runs on zeros may use them.
TEST(DryScope, its_tensors_may_be_used_on_other_threads) {
  const DryScope dry;
  const at::Tensor x = at::ones({500, 3});
  std::thread([&] {
    EXPECT_EQ(at::_cdist_forward(x, x, 2.0, std::nullopt).sizes(),
              (std::vector<int64_t>{500, 500}));
  }).join();
}

TEST(DryScope, is_the_only_one) {
  {
    const DryScope dry;
    EXPECT_THROW(DryScope(), c10::Error);
    std::thread([] { EXPECT_THROW(DryScope(), c10::Error); }).join();
    EXPECT_TRUE(is_dry(at::ones({9})));
  }
  const DryScope after;
  EXPECT_TRUE(is_dry(at::ones({9})));
}

TEST(DryScope, leaves_torchs_own_meta_device_as_it_is) {
  const at::Tensor x = at::ones({500, 3}, at::kMeta);
  const auto check = [&] {
    EXPECT_THROW(at::_cdist_forward(x, x, 2.0, std::nullopt), c10::NotImplementedError);
    at::Tensor real = at::ones({500, 3});
    EXPECT_THROW(real.copy_(x), c10::NotImplementedError);
    EXPECT_THROW(x.to(at::kCPU), c10::NotImplementedError);
    at::Tensor positive = x.clone();
    EXPECT_EQ(at::relu_(positive).sizes(), x.sizes());
    EXPECT_EQ(x.mean(1).sizes(), (std::vector<int64_t>{500}));
    try {
      x.sum().item();
      ADD_FAILURE() << "a tensor of the meta device had a value";
    } catch (const NeedsValues&) {
      ADD_FAILURE() << "spoke of a dry run outside one";
    } catch (const c10::Error&) {
    }
  };
  check();
  {
    const DryScope dry;
    EXPECT_TRUE(is_dry(at::cdist(at::ones({500, 3}), at::ones({7, 3}))));
    std::thread(check).join();
  }
  check();
}

struct Convolution {
  int64_t samples, channels, height, width, filters, kernel = 3, stride = 1, groups = 1;
  bool bias = false;
  at::ScalarType dtype = at::kFloat;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;

  std::string in_words() const {
    return fmt::format("x[{},{},{},{}] in {} {}, {} filters, kernel {}, stride {}, groups {}{}",
                       samples, channels, height, width, c10::toString(dtype),
                       format == at::MemoryFormat::ChannelsLast ? "channels-last" : "contiguous",
                       filters, kernel, stride, groups, bias ? ", bias" : "");
  }
};

int64_t peak_of(const MemoryTrace& trace) {
  int64_t live = 0, peak = 0;
  for (const auto& event : trace) peak = std::max(peak, live += event.bytes);
  return peak;
}

// Peak bytes of the forward of one convolution, and of its backward.
std::pair<int64_t, int64_t> convolution_peaks(const Convolution& c) {
  const at::Tensor x =
      at::zeros({c.samples, c.channels, c.height, c.width}, c.dtype).contiguous(c.format);
  const at::Tensor weight =
      at::zeros({c.filters, c.channels / c.groups, c.kernel, c.kernel}, c.dtype)
          .contiguous(c.format);
  const at::Tensor bias = c.bias ? at::zeros({c.filters}, c.dtype) : at::Tensor();
  const std::vector<int64_t> bias_sizes = {c.filters};
  const int64_t padding = c.kernel / 2;
  const TraceScope forward;
  const at::Tensor y = at::conv2d(x, weight, bias, c.stride, padding, /*dilation=*/1, c.groups);
  const TraceScope backward;
  const auto gradients = at::convolution_backward(
      y, x, weight, c.bias ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt,
      {c.stride, c.stride}, {padding, padding}, {1, 1}, false, {0, 0}, c.groups,
      {true, true, c.bias});
  return {peak_of(forward.trace()), peak_of(backward.trace())};
}

// Checks two dry runs: the first, before the kernel was asked, and one after that.
void expect_real_peaks_of(const Convolution& c, double tolerance = 0) {
  SCOPED_TRACE(c.in_words());
  const auto real = convolution_peaks(c);
  for (int time = 0; time < 2; ++time) {
    const DryScope dry;
    const auto said = convolution_peaks(c);
    EXPECT_NEAR(said.first, real.first, tolerance * static_cast<double>(real.first)) << time;
    EXPECT_NEAR(said.second, real.second, tolerance * static_cast<double>(real.second)) << time;
  }
}

constexpr auto kFormats = {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast};

TEST(DryScope, a_convolution_takes_what_its_kernel_does) {
  enable_half_convolution();
  for (const auto format : kFormats) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const Convolution& shape :
           std::initializer_list<Convolution>{{1, 17, 40, 31, 33},
                                              {2, 17, 40, 31, 33},
                                              {1, 3, 13, 11, 7, 5, 2},
                                              {3, 6, 13, 11, 9, 3, 1, 3, true},
                                              {2, 6, 40, 31, 6, 7, 1, 6},
                                              {1, 16, 40, 31, 32, 5, 2, 4, true},
                                              {3, 32, 13, 11, 64, 1, 1, 1, true},
                                              {2, 17, 40, 31, 33, 1, 2},
                                              {3, 1, 5, 7, 5},
                                              {1, 4, 1, 1, 1, 1, 1, 1, true}}) {
        Convolution c = shape;
        c.dtype = dtype;
        c.format = format;
        expect_real_peaks_of(c);
      }
    }
  }
}

TEST(DryScope, a_convolution_too_large_to_try_takes_what_smaller_ones_tell) {
  for (const auto format : kFormats) {
    for (const auto& [shape, tolerance] : std::initializer_list<std::pair<Convolution, double>>{
             {{11, 17, 60, 41, 33}, 0.03},
             {{1, 17, 240, 151, 33}, 0.03},
             {{1, 16, 160, 131, 32, 7, 1, 4}, 0.03},
             {{6, 32, 90, 71, 64, 5, 2}, 0.1}}) {  // scratch memory grows in large steps
      Convolution c = shape;
      c.format = format;
      expect_real_peaks_of(c, tolerance);
    }
  }
}

TEST(DryScope, of_a_device_has_its_kernels_though_tensors_report_the_cpu) {
  const at::Tensor real = at::ones({2});
  for (const auto device : {at::kCPU, at::kCUDA, at::kPrivateUse1}) {
    const DryScope dry(device);
    const at::Tensor x = at::ones({2});
    EXPECT_TRUE(x.is_cpu());
    EXPECT_EQ(kernels_of(x), device);
    EXPECT_EQ(has_cpu_kernels(x), device == at::kCPU);
    EXPECT_TRUE(has_cpu_kernels(real));
  }
  const DryScope dry;
  EXPECT_TRUE(has_cpu_kernels(at::ones({2})));
}

// CUDA's autocast computes a softmax in fp32, the CPU's in the dtype that it gets.
TEST(DryScope, of_a_device_casts_by_cudas_lists) {
  PrecisionPlan precision;
  precision.mode = Mode::bf16;
  precision.patch_torch_functions = true;
  for (const auto device : {at::kCPU, at::kCUDA, at::kCPU}) {
    const DryScope dry(device);
    const AutocastScope autocast(at::kCPU, precision);
    const at::Tensor x = at::ones({4, 4});
    const at::Tensor product = at::mm(x, x);
    EXPECT_EQ(product.scalar_type(), at::kBFloat16);
    EXPECT_EQ(at::softmax(product, -1).scalar_type(),
              device == at::kCPU ? at::kBFloat16 : at::kFloat);
  }
}

TEST(DryScope, of_a_device_takes_for_a_convolution_its_results_alone) {
  const Convolution c{2, 17, 40, 31, 33};
  const DryScope dry(at::kCUDA);
  const auto said = convolution_peaks(c);
  EXPECT_EQ(said.first, 4 * 2 * 33 * 40 * 31);
  EXPECT_EQ(said.second, 4 * (2 * 17 * 40 * 31 + 33 * 17 * 9));
}

TEST_F(PredictionTest, of_a_device_adds_a_workspace_for_each_thread_that_computes) {
  const auto config = small("mlp", "bf16");
  const auto dataset = open_dataset(config.data.train, "data.train");
  const StepPredictor predictor([&] { return build_task(config, ModelRegistry(), *dataset); },
                                *dataset);
  Plan plan = TinyRun(config, dataset.get(), std::nullopt).parts.plan;
  plan.device.device = "cuda:0";
  const MemoryPrediction without = predictor.step(plan);
  const int64_t evaluation = predictor.evaluation_peak(plan, 4);
  const int64_t alone = predictor.evaluation_peak(plan, 4, /*trains=*/false);
  plan.device.workspace_bytes = 1000;
  const MemoryPrediction with = predictor.step(plan);
  const auto workspaces = static_cast<size_t>(MemoryKind::workspaces);
  EXPECT_EQ(without.at_peak.at(workspaces), 0);
  EXPECT_EQ(with.at_peak.at(workspaces), 2000);
  EXPECT_EQ(with.peak_bytes, without.peak_bytes + 2000);
  EXPECT_EQ(predictor.evaluation_peak(plan, 4), evaluation + 2000);
  EXPECT_EQ(predictor.evaluation_peak(plan, 4, /*trains=*/false), alone + 1000);
}

TEST(DryScope, a_model_that_asks_for_values_is_told_so) {
  const DryScope dry;
  EXPECT_THROW(at::ones({3}).sum().item<float>(), Error);
}

}  // namespace
}  // namespace tanren::testing
