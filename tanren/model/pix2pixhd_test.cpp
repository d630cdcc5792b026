#include "tanren/model/pix2pixhd.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/formats/pt_file.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/couples_samples.h"
#include "tanren/model/perceptual_loss.h"
#include "tanren/model/registry.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

namespace tanren {
namespace {

using testing::error_of;

// Pairs of pictures.
DataInfo pairs(int64_t height, int64_t width, int64_t in = 2, int64_t out = 3) {
  return {
      .input_shape = {in, height, width}, .outputs = out * height * width, .class_labels = false};
}

ModelOptions small_gan(const std::string& size) {
  return {.kind = "pix2pixhd",
          .size = size,
          .generator_channels = 4,
          .num_downsamplings = 2,
          .num_blocks = 2,
          .enhancer_blocks = 1,
          .discriminator_channels = 4};
}

TensorMap gan_fixture(const std::string& size) {
  return read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/pix2pixhd_" + size + ".safetensors")
      .tensors;
}

// The task with the fixture's weights, each of which must fit.
Task task_of_fixture(const std::string& size, const TensorMap& fixture) {
  Task task = ModelRegistry().make(small_gan(size), pairs(32, 32));
  const at::NoGradGuard no_grad;
  size_t found = 0;
  for (const auto& item : task.module->named_parameters()) {
    EXPECT_EQ(item.value().sizes(), fixture.at(item.key()).sizes()) << item.key();
    at::Tensor(item.value()).copy_(fixture.at(item.key()));
    ++found;
  }
  size_t stored = 0;
  for (const auto& [name, tensor] : fixture) {
    stored += name.starts_with("generator.") || name.starts_with("discriminator.") ? 1 : 0;
  }
  EXPECT_EQ(found, stored) << size;
  return task;
}

Batch batch_of(const TensorMap& fixture) {
  Batch batch;
  batch.fields.set("inputs", fixture.at("inputs"));
  batch.fields.set("labels", fixture.at("labels"));
  batch.ids = at::arange(fixture.at("inputs").size(0));
  return batch;
}

double term_of(const Terms& terms, const std::string& name) {
  for (const Term& term : terms) {
    if (term.name == name) return term.sum.item<double>();
  }
  ADD_FAILURE() << "no term " << name;
  return 0;
}

TEST(Pix2pixhd, pictures_that_do_not_fit_are_refused_in_one_line) {
  const auto message = [](const ModelOptions& options, const DataInfo& info) {
    auto text = error_of<ConfigError>([&] { ModelRegistry().make(options, info); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  const ModelOptions whole{.kind = "pix2pixhd"};
  TANREN_EXPECT_CONTAINS(message(whole, pairs(40, 64)),
                         "halves a picture 4 times, so that height and width must be multiples of "
                         "16, at least 32; these have 40 × 64; set data.train.size to 32 × 64, for "
                         "instance, or model.num_downsamplings = 3");
  TANREN_EXPECT_CONTAINS(message({.kind = "pix2pixhd", .size = "local"}, pairs(48, 64)),
                         "halves a picture 5 times");
  TANREN_EXPECT_CONTAINS(message(whole, pairs(16, 16)), "to 32 × 32");
  TANREN_EXPECT_CONTAINS(message({.kind = "pix2pixhd", .size = "globe"}, pairs(64, 64)),
                         "size 'globe' is unknown; did you mean 'global'?");
  TANREN_EXPECT_CONTAINS(message({.kind = "pix2pixhd", .outputs = 1}, pairs(64, 64)),
                         "outputs = 1, and the data's pictures have 3 channels");
  TANREN_EXPECT_CONTAINS(message(whole, {.input_shape = {3, 64, 64}, .outputs = 10}),
                         "needs a picture as each sample's labels, the data has classes");
  TANREN_EXPECT_CONTAINS(
      message(whole, {.input_shape = {3, 64, 64}, .outputs = 10, .class_labels = false}),
      "labels have 10 values");
  TANREN_EXPECT_CONTAINS(
      message(whole, {.input_shape = {3, kAnySize, kAnySize}, .outputs = 0, .class_labels = false}),
      "set model.outputs");
  const ModelOptions seen{.kind = "pix2pixhd", .perceptual = "vgg19.pth"};
  TANREN_EXPECT_CONTAINS(message(seen, pairs(64, 64, 3, 1)), "pictures of 3 channels");
}

TEST(Pix2pixhd, a_batch_of_other_pictures_than_the_data_announced_is_refused) {
  const Task task = ModelRegistry().make(
      [] {
        ModelOptions options = small_gan("global");
        options.outputs = 3;
        return options;
      }(),
      {.input_shape = {2, kAnySize, kAnySize}, .outputs = 0, .class_labels = false});
  Batch batch;
  batch.ids = at::arange(1);
  batch.fields.set("inputs", at::zeros({1, 2, 16, 18}));
  batch.fields.set("labels", at::zeros({1, 3, 16, 18}));
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { task.predict(batch); }), "16 × 18");
  batch.fields.set("labels", at::zeros({1, 3, 16, 16}));
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { task.predict(batch); }),
                         "shape [1, 3, 16, 16], and pix2pixhd makes [1, 3, 16, 18]");
}

TEST(Pix2pixhd, has_the_names_pictures_and_losses_of_nvidias_code) {
  for (const std::string size : {"global", "local"}) {
    SCOPED_TRACE(size);
    const TensorMap fixture = gan_fixture(size);
    const Task task = task_of_fixture(size, fixture);
    const Batch batch = batch_of(fixture);
    const at::NoGradGuard no_grad;
    const Prediction prediction = task.predict(batch);
    EXPECT_LT((prediction.outputs - fixture.at("made")).abs().max().item<double>(), 1e-5);
    EXPECT_TRUE(at::equal(prediction.targets, batch["labels"]));
    const Terms terms = task.phases.front().forward(batch);
    for (const char* name : {"gan", "feature", "l1", "real", "fake"}) {
      const double wanted = 3 * fixture.at(std::string("steps/") + name)[0].item<double>();
      EXPECT_NEAR(term_of(terms, name), wanted, 1e-5 * wanted) << name;
    }
    EXPECT_EQ(prediction.terms.size(), 3u) << "the generator's";
  }
}

// Counted in NVIDIA's code for 36 channels of labels and 3 colours.
TEST(Pix2pixhd, has_nvidias_number_of_parameters_by_default) {
  const DryScope without_memory;
  const auto count = [](const std::string& size, const std::string& part) {
    const Task task =
        ModelRegistry().make({.kind = "pix2pixhd", .size = size}, pairs(64, 64, 36, 3));
    int64_t parameters = 0;
    for (const auto& item : task.module->named_parameters()) {
      if (item.key().starts_with(part)) parameters += item.value().numel();
    }
    return parameters;
  };
  EXPECT_EQ(count("", "generator."), 182546755);
  EXPECT_EQ(count("local", "generator."), 731036355);
  EXPECT_EQ(count("", "discriminator."), 5603202);
}

TEST(Pix2pixhd, begins_with_nvidias_distribution_of_weights) {
  at::manual_seed(3);
  const Task task = ModelRegistry().make({.kind = "pix2pixhd", .num_blocks = 1}, pairs(32, 32));
  for (const auto& item : task.module->named_parameters()) {
    if (item.value().numel() < 10000) continue;
    EXPECT_NEAR(item.value().std().item<double>(), 0.02, 0.001) << item.key();
  }
}

TEST(Pix2pixhd, without_discriminators_has_the_generators_objective_alone) {
  ModelOptions options = small_gan("local");
  options.discriminators = 0;
  const Task task = ModelRegistry().make(options, pairs(32, 32));
  ASSERT_EQ(task.phases.front().objectives.size(), 1u);
  EXPECT_EQ(task.phases.front().objectives.front().terms.front().weight, 1);
  for (const auto& item : task.module->named_parameters()) {
    EXPECT_TRUE(item.key().starts_with("generator.")) << item.key();
  }
  const Terms terms = task.phases.front().forward(batch_of(gan_fixture("local")));
  ASSERT_EQ(terms.size(), 1u);
  EXPECT_EQ(terms.front().name, "l1");
}

TEST(Pix2pixhd, couples_no_samples) {
  const Task task = ModelRegistry().make(small_gan("local"), pairs(32, 32));
  EXPECT_FALSE(couples_samples(*task.module));
  const Batch batch = batch_of(gan_fixture("local"));
  const at::NoGradGuard no_grad;
  const Terms whole = task.phases.front().forward(batch);
  for (size_t i = 0; i < whole.size(); ++i) {
    double sum = 0;
    for (int64_t sample = 0; sample < batch.size(); ++sample) {
      sum += task.phases.front().forward(batch.slice(sample, sample + 1))[i].sum.item<double>();
    }
    EXPECT_NEAR(sum, whole[i].sum.item<double>(), 1e-5 * sum) << whole[i].name;
  }
}

TEST(Pix2pixhd, made_pictures_are_scored_once) {
  const Task task = ModelRegistry().make(small_gan("global"), pairs(32, 32));
  static thread_local int convolutions;
  convolutions = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& fn)
                                     -> std::unique_ptr<at::ObserverContext> {
        convolutions += std::string(fn.name()) == "aten::convolution" ? 1 : 0;
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  task.phases.front().forward(batch_of(gan_fixture("global")));
  at::removeCallback(handle);
  EXPECT_EQ(convolutions, 10 + 2 * 2 * 5) << "generator, and two scales of five layers twice";
}

TEST(Pix2pixhd, pads_and_norms_in_16_bits_under_autocast) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    const at::Tensor x = at::randn({2, 3, 8, 8}).to(dtype);
    const at::Tensor padded = reflection_pad(x, 3);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_EQ(padded.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(padded, at::reflection_pad2d(x, {3, 3, 3, 3})));
  }
}

TEST(Pix2pixhd, instance_norm_is_torchs) {
  const at::Tensor x = at::randn({2, 5, 7, 9}, at::kDouble);
  const at::Tensor theirs =
      at::instance_norm(x, {}, {}, {}, {}, /*use_input_stats=*/true, 0.1, 1e-5, false);
  EXPECT_LT((instance_norm(x) - theirs).abs().max().item<double>(), 1e-12);
  EXPECT_TRUE(at::equal(instance_norm(at::ones({2, 3, 1, 1})), at::zeros({2, 3, 1, 1})));
}

// A vgg19 of random weights, as far as the loss reads it.
TensorMap vgg19_file() {
  TensorMap tensors;
  int64_t in = 3, index = 0;
  for (const int64_t out :
       {64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512}) {
    if (out == 0) {
      ++index;
      continue;
    }
    const double deviation = std::sqrt(2.0 / static_cast<double>(in * 9));
    tensors.set(fmt::format("features.{}.weight", index),
                (at::randn({out, in, 3, 3}) * deviation).to(at::kBFloat16));
    tensors.set(fmt::format("features.{}.bias", index), at::randn({out}).to(at::kBFloat16));
    index += 2;
    in = out;
  }
  return tensors;
}

// As NVIDIA's VGGLoss slices torchvision's vgg19.features: modules 0-1, 2-6, 7-11, 12-20, 21-29.
std::vector<at::Tensor> vgg19_slices(const TensorMap& weights, at::Tensor x) {
  std::vector<at::Tensor> slices;
  for (int64_t module = 0; module < 30; ++module) {
    const auto* weight = weights.find(fmt::format("features.{}.weight", module));
    if (weight != nullptr) {
      const auto& bias = weights.at(fmt::format("features.{}.bias", module));
      x = at::conv2d(x, weight->to(x.scalar_type()), bias.to(x.scalar_type()), 1, 1);
    } else if (module == 4 || module == 9 || module == 18 || module == 27) {
      x = at::max_pool2d(x, 2, 2);
    } else {
      x = at::relu(x);
    }
    for (const int64_t last : {1, 6, 11, 20, 29}) {
      if (module == last) slices.push_back(x);
    }
  }
  return slices;
}

TEST(PerceptualLoss, compares_the_slices_that_nvidias_code_compares) {
  at::manual_seed(4);
  const testing::TemporaryFolder folder;
  const TensorMap weights = vgg19_file();
  write_safetensors(folder.path() / "vgg19.safetensors", weights);
  PerceptualLoss loss(folder.path() / "vgg19.safetensors");
  const at::Tensor made = (at::rand({2, 3, 32, 16}, at::kDouble) * 2 - 1).requires_grad_();
  const at::Tensor real = (at::rand({2, 3, 32, 16}, at::kDouble) * 2 - 1).requires_grad_();
  const Term term = loss(made, real);
  EXPECT_EQ(term.name, "perceptual");
  const auto a = vgg19_slices(weights, made), b = vgg19_slices(weights, real.detach());
  at::Tensor mean = at::zeros({}, at::kDouble);
  const std::vector<double> factors = {1.0 / 32, 1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0};
  for (size_t i = 0; i < 5; ++i) mean = mean + factors[i] * (a[i] - b[i]).abs().mean();
  const double wanted = 2 * mean.item<double>();
  EXPECT_NEAR(term.sum.item<double>(), wanted, 1e-10 * wanted);
  const auto gradients = torch::autograd::grad({term.sum}, {made, real}, {}, {}, false, true);
  const auto own = torch::autograd::grad({2 * mean}, {made});
  EXPECT_LT((gradients[0] - own[0]).norm().item<double>(), 1e-10 * own[0].norm().item<double>());
  EXPECT_FALSE(gradients[1].defined()) << "the real picture's features are constants";
}

TEST(PerceptualLoss, is_no_part_of_the_model_and_names_a_file_that_does_not_fit) {
  const testing::TemporaryFolder folder;
  TensorMap weights = vgg19_file();
  write_pt(folder.path() / "vgg19.pth", weights);
  ModelOptions options = small_gan("global");
  options.perceptual = (folder.path() / "vgg19.pth").string();
  const Task task = ModelRegistry().make(options, pairs(32, 32));
  const Task without = ModelRegistry().make(small_gan("global"), pairs(32, 32));
  EXPECT_EQ(task.module->parameters().size(), without.module->parameters().size());
  EXPECT_EQ(task.module->buffers().size(), 0u);
  const Terms terms = task.phases.front().forward(batch_of(gan_fixture("global")));
  EXPECT_GT(term_of(terms, "perceptual"), 0);
  EXPECT_EQ(task.phases.front().objectives.front().terms.back().name, "perceptual");
  EXPECT_EQ(task.phases.front().objectives.front().terms.back().weight, 10);

  weights.set("features.5.weight", at::zeros({128, 64, 1, 1}));
  write_pt(folder.path() / "vgg19.pth", weights);
  TANREN_EXPECT_CONTAINS(
      error_of<CheckpointError>([&] { ModelRegistry().make(options, pairs(32, 32)); }),
      "features.5.weight is [128, 64, 1, 1], torchvision's vgg19 has [128, 64, 3, 3]");
  options.perceptual = (folder.path() / "none.pth").string();
  error_of<InputError>([&] { ModelRegistry().make(options, pairs(32, 32)); });
}

}  // namespace
}  // namespace tanren
