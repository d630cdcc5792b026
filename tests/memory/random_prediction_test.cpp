// Dry runs predict the memory of the steps of random configs: every kind of model, precision mode
// and optimizer, odd sizes. Another TANREN_PREDICTION_SEED draws other configs.
#include "tests/support/step_peaks.h"

#include "tanren/base/memory_tag.h"
#include "tanren/model/image_input.h"
#include "tanren/model/resnet.h"
#include "tanren/model/supervised.h"
#include "tanren/model/vgg.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>

namespace tanren::testing {
namespace {

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool once_in(int64_t times) { return between(1, times) == 1; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, std::ssize(values) - 1)];
  }

 private:
  std::mt19937 random_;
};

// Mostly models with few channels, where scratch memory has the largest share.
constexpr std::array<const char*, 20> kKinds = {
    "convnet", "mlp", "gpt2",    "resnet",  "convnet", "bert",   "lstm",
    "convnet", "mlp", "vgg",     "convnet", "lstm",    "resnet", "convnet",
    "gpt2",    "mlp", "convnet", "bert",    "lstm",    "resnet"};

std::string tensor(const char* name, const std::string& shape, const std::string& range) {
  return std::string(name) + ": " + shape + " in [" + range + "]";
}

void draw_images(Draw& draw, RunConfig& config) {
  ModelOptions& model = config.model;
  const bool convnet = model.kind == "convnet";
  const int64_t least = convnet ? 5 : 33, most = convnet ? 45 : 40;
  config.data.train.fields[0] =
      tensor("inputs",
             fmt::format("float[{},{},{}]", draw.between(1, 5), draw.between(least, most),
                         draw.between(least, most)),
             "-1, 1");
  model.memory_format = draw.one_of({"auto", "contiguous", "channels_last"});
  if (convnet) {
    model.channels.clear();
    for (int64_t i = draw.between(1, 3); i > 0; --i) model.channels.push_back(draw.between(1, 70));
    model.norm = draw.one_of({"group", "batch", "none"});
    model.dropout = draw.one_of({0.0, 0.1});
  } else if (model.kind == "resnet") {
    // (Deep ones take long in fp64.)
    const bool small = config.precision.mode == "fp64" || !draw.once_in(3);
    model.size = small ? "resnet18" : draw.one_of({"resnet34", "resnet34", "resnet50"});
  } else {
    model.size = draw.one_of({"vgg11", "vgg13_bn"});
    model.dropout = draw.one_of({0.0, 0.5});
    // Freezes most of its weights; prediction_test trains them.
    model.freeze = {"classifier.0.*", "classifier.3.*"};
  }
}

void draw_tokens(Draw& draw, RunConfig& config) {
  ModelOptions& model = config.model;
  const int64_t length = draw.between(3, 90), vocabulary = draw.between(50, 900);
  const std::string range = fmt::format("0, {}", vocabulary - 1);
  auto& fields = config.data.train.fields;
  fields[0] = tensor("inputs", fmt::format("int[{}]", length), range);
  if (model.kind == "gpt2" || draw.once_in(2)) {
    if (model.kind == "bert") model.task = "masked_lm";
    if (model.kind == "lstm") model.task = "next_token";
    fields[1] = tensor("labels", fmt::format("int[{}]", length), range);
    model.loss_chunk = draw.one_of({0, 0, 7, 64});
  } else if (model.kind == "lstm") {
    model.bidirectional = draw.once_in(2);
  }
  model.num_layers = draw.between(1, 3);
  model.hidden_size = draw.between(5, 130);
  model.dropout = draw.one_of({0.0, 0.1});
  if (model.kind == "lstm") return;
  model.num_heads = draw.between(1, 4);
  model.hidden_size = model.num_heads * draw.between(5, 40);
}

void draw_values(Draw& draw, RunConfig& config) {
  config.model.hidden.clear();
  for (int64_t i = draw.between(1, 3); i > 0; --i) {
    config.model.hidden.push_back(draw.between(1, 500));
  }
  config.model.activation = draw.one_of({"relu", "gelu", "gelu_tanh", "tanh", "silu"});
  config.model.dropout = draw.one_of({0.0, 0.1});
  const std::string shape = fmt::format("float[{}]", draw.between(1, 400));
  config.data.train.fields[0] = tensor("inputs", shape, "-1, 1");
  if (!draw.once_in(3)) return;
  config.model.loss = draw.one_of({"mse", "l1"});
  config.data.train.fields[1] = tensor("labels", "float[3]", "-1, 1");
}

void draw_optimizer(Draw& draw, RunConfig& config) {
  OptimizerOptions& optimizer = config.optimizer;
  optimizer.kind = draw.one_of({"adamw", "adam", "nadam", "radam", "adagrad", "rmsprop",
                                "adafactor", "adafactor", "lion", "muon", "sgd"});
  if (optimizer.kind == "adamw" || optimizer.kind == "adam") {
    optimizer.state = draw.one_of({"fp32", "bf16", "8bit"});
    optimizer.amsgrad = optimizer.state == "fp32" && draw.once_in(2);
  }
  if (optimizer.kind == "rmsprop") optimizer.centered = draw.once_in(2);
  if (optimizer.kind == "rmsprop" || optimizer.kind == "sgd") {
    optimizer.momentum = draw.one_of({0.0, 0.9});
  }
  optimizer.newton_schulz_steps = 1;  // takes as much memory as five
  if (draw.once_in(3)) config.clip.norm = 1;
  if (draw.once_in(5)) config.clip.value = 0.1;
  config.average.kind = draw.one_of({"none", "none", "none", "ema", "swa"});
}

RunConfig random_config(Draw& draw, const std::string& kind) {
  auto config = tiny_config(kind);
  config.memory.limit = "16GiB";  // installs our allocator, under a sanitizer too
  config.precision.mode = draw.one_of({"fp32", "bf16", "fp16", "fp64"});
  if (config.precision.mode == "fp16") config.precision.initial_scale = "1";
  // (torch has no LSTM under bf16 autocast on some CPUs; prediction_test covers the others.)
  if (kind == "lstm" && config.precision.mode == "bf16") config.precision.mode = "fp32";
  config.run.threads = draw.between(1, 3);
  const bool deep = kind == "resnet" || kind == "vgg";
  const int64_t batch = deep ? draw.between(1, 3) : draw.one_of({1, 2, 3, 5, 8, 12});
  config.batch.global_batch = std::to_string(batch);
  config.batch.microbatch = draw.once_in(2) ? draw.between(1, batch) : 0;
  config.data.train.fields = {"", "labels: int[] in [0, 4]"};
  if (kind == "mlp") {
    draw_values(draw, config);
  } else if (kind == "convnet" || kind == "resnet" || kind == "vgg") {
    draw_images(draw, config);
  } else {
    draw_tokens(draw, config);
  }
  draw_optimizer(draw, config);
  if (kind == "vgg") {  // 30 million weights
    if (config.precision.mode == "fp64") config.precision.mode = "fp32";
    config.average.kind = "none";
  }
  if (draw.once_in(4)) config.memory.recompute = {kind == "vgg" ? "features.*" : "*"};
  return config;
}

std::string in_words(const RunConfig& c) {
  std::string text = fmt::format("{} {} {} state {}, batch {} by {}, {} threads, {}, {}",
                                 c.model.kind, c.precision.mode, c.optimizer.kind,
                                 c.optimizer.state, c.batch.global_batch, c.batch.microbatch,
                                 c.run.threads, c.data.train.fields[0], c.data.train.fields[1]);
  if (c.model.kind == "convnet") {
    text += ", norm " + c.model.norm + ", channels";
    for (const int64_t width : c.model.channels) text += " " + std::to_string(width);
  }
  if (c.model.kind == "mlp") {
    for (const int64_t width : c.model.hidden) text += " " + std::to_string(width);
  }
  text +=
      fmt::format(", {} {} {} layers, {} heads, {} wide, chunk {}, format {}, average {}",
                  c.model.size, c.model.task, c.model.num_layers, c.model.num_heads,
                  c.model.hidden_size, c.model.loss_chunk, c.model.memory_format, c.average.kind);
  return text + (c.memory.recompute.empty() ? "" : ", recomputed");
}

// Presets take long, and most of their memory is weights. A ResNet keeps its first three stages
// with one block each, and one more in the first if the preset is deep. A VGG keeps an eighth of
// its channels.
std::function<Task()> smaller_preset(const RunConfig& config) {
  const ModelOptions options = config.model;
  if (options.kind != "resnet" && options.kind != "vgg") return {};
  const DataInfo info = open_dataset(config.data.train, "data.train")->info();
  if (options.kind == "vgg") {
    auto shape = vgg_shape(options.size).value();
    for (int64_t& width : shape.channels) width /= 8;
    shape.in_channels = image_channels(info, options.kind, /*min_edge=*/32);
    shape.outputs = num_outputs(options, info);
    shape.dropout = options.dropout.value_or(shape.dropout);
    return [options, info, shape] {
      const MemoryScope memory(MemoryKind::weights);
      at::manual_seed(7);
      return supervised(std::make_shared<Vgg>(shape), options, info);
    };
  }
  auto shape = resnet_shape(options.size).value();
  shape.blocks = {shape.blocks[0] - 1, 1, 1, 0};
  shape.in_channels = image_channels(info, options.kind, /*min_edge=*/1);
  shape.outputs = num_outputs(options, info);
  return [options, info, shape] {
    const MemoryScope memory(MemoryKind::weights);
    at::manual_seed(7);
    return supervised(std::make_shared<Resnet>(shape), options, info);
  };
}

class RandomPrediction : public StepPeaksTest {};

TEST_F(RandomPrediction, of_forty_random_configs_is_within_3_percent_or_256_KiB) {
  constexpr int kConfigs = 40, kSeed = 22;
  constexpr double kShare = 0.03, kBytes = 256 << 10;
  const char* asked = std::getenv("TANREN_PREDICTION_SEED");
  const int seed = asked != nullptr ? std::atoi(asked) : kSeed;
  Draw draw(static_cast<uint32_t>(seed));
  struct Worst {
    double share = 0, bytes = 0;
  };
  std::map<std::string, Worst> worst;
  for (int i = 0; i < kConfigs; ++i) {
    const auto config = random_config(draw, kKinds.at(static_cast<size_t>(i) % kKinds.size()));
    const std::string words = fmt::format("config {}: {}", i, in_words(config));
    SCOPED_TRACE(fmt::format("seed {}, {}", seed, words));
    std::printf("%s\n", words.c_str());
    std::fflush(stdout);
    const StepPeaks peaks = step_peaks(config, smaller_preset(config));
    const auto off = static_cast<double>(peaks.predicted - peaks.measured);
    std::printf("  predicted %lld, measured %lld, off by %.0f, %+.2f %%\n",
                static_cast<long long>(peaks.predicted), static_cast<long long>(peaks.measured),
                off, 100 * peaks.error());
    EXPECT_LE(std::abs(off), std::max(kShare * static_cast<double>(peaks.measured), kBytes))
        << "predicted " << peaks.predicted << ", measured " << peaks.measured;
    Worst& of_kind = worst[config.model.kind];
    of_kind.share = std::max(of_kind.share, std::abs(peaks.error()));
    of_kind.bytes = std::max(of_kind.bytes, std::abs(off));
  }
  for (const auto& [kind, error] : worst) {
    std::printf("worst of %-8s %.2f %%, %.0f bytes\n", kind.c_str(), 100 * error.share,
                error.bytes);
  }
}

}  // namespace
}  // namespace tanren::testing
