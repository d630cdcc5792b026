// Runs of Pix2PixHD: against NVIDIA's step from the same weights, over microbatches and ranks,
// recomputed, in 16 bits, predicted, and from and to NVIDIA's files.
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/config/read_config.h"
#include "tanren/forecast/first_step.h"
#include "tanren/formats/pt_file.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/python_folder.h"
#include "tanren/interop/transfer.h"
#include "tanren/interop/whole_model.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/run/run.h"
#include "tanren/train/evaluate.h"
#include "tests/support/allocations.h"
#include "tests/support/rank_run.h"
#include "tests/support/step_peaks.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFixtures = TANREN_SOURCE_DIR "/tests/fixtures/";

TensorMap fixture_of(const std::string& size) {
  return read_safetensors(kFixtures + "pix2pixhd_" + size + ".safetensors").tensors;
}

RunConfig picture_config(const std::string& size, const std::string& mode = "fp64") {
  RunConfig config = tiny_config("pix2pixhd");
  config.model.size = size;
  config.model.generator_channels = 4;
  config.model.num_downsamplings = 2;
  config.model.num_blocks = 2;
  config.model.enhancer_blocks = 1;
  config.model.discriminator_channels = 4;
  config.data.train.fields = {"inputs: float[2,32,32] in [-1, 1]",
                              "labels: float[3,32,32] in [-1, 1]"};
  config.data.train.samples = 8;
  config.batch.global_batch = "3";
  config.precision.mode = mode;
  config.optimizer.kind = "adam";
  config.optimizer.learning_rate = 2e-4;
  config.optimizer.beta1 = 0.5;
  return config;
}

// The config for comparing two ways to compute. The gradient of a bias before a norm is only
// rounding error, which Adam divides by eps.
RunConfig exact_config(const std::string& size) {
  RunConfig config = picture_config(size);
  config.optimizer.eps = 1e-6;
  return config;
}

// The fixture's batch as a dataset of three pairs, and its weights in the task.
std::unique_ptr<TensorDataset> pairs_of(const TensorMap& fixture) {
  TensorMap fields;
  for (const char* name : {"inputs", "labels"}) fields.set(name, fixture.at(name));
  const DataInfo info{.input_shape = {2, 32, 32}, .outputs = 3 * 32 * 32, .class_labels = false};
  return std::make_unique<TensorDataset>(fields, info, "data.train");
}

Task with_weights(const RunConfig& config, const Dataset& data, const TensorMap& fixture) {
  Task task = build_task(config, ModelRegistry(), data);
  const at::NoGradGuard no_grad;
  for (auto& item : task.module->named_parameters()) item.value().copy_(fixture.at(item.key()));
  return task;
}

TEST(Pix2pixhdRun, loses_as_nvidias_code_through_five_steps) {
  for (const std::string size : {"global", "local"}) {
    const TensorMap fixture = fixture_of(size);
    const auto data = pairs_of(fixture);
    RunConfig config = picture_config(size);
    config.data.shuffle = false;
    TinyRun run(config, data.get(), with_weights(config, *data, fixture));
    const auto reports = run.steps(5);
    for (int64_t i = 0; i < 5; ++i) {
      const auto& report = reports[static_cast<size_t>(i)];
      ASSERT_EQ(report.objectives.size(), 2u);
      EXPECT_EQ(report.objectives[0].name, "generator");
      EXPECT_EQ(report.step, i + 1);
      for (const auto& objective : report.objectives) {
        EXPECT_EQ(objective.terms.size(), 2u) << "l1 weighs nothing and is not told";
        for (const auto& [name, value] : objective.terms) {
          const double wanted = fixture.at("steps/" + name)[i].item<double>();
          EXPECT_NEAR(value, wanted, 1e-9 * wanted) << size << ", step " << i << ": " << name;
        }
      }
      const double gan = fixture.at("steps/gan")[i].item<double>();
      const double feature = fixture.at("steps/feature")[i].item<double>();
      EXPECT_NEAR(report.objectives[0].loss, gan + 10 * feature, 1e-8);
    }
  }
}

TEST(Pix2pixhdRun, shows_the_layers_of_both_networks_before_the_first_step) {
  const RunConfig config = picture_config("global", "fp32");
  const TinyRun run(config);
  const std::string text = first_step_text(
      run.parts.plan, [&] { return build_task(config, ModelRegistry(), *run.dataset); },
      *run.dataset, {});
  const auto expect_layer = [&](const std::string& name, const std::string& shape, int64_t count) {
    const size_t begin = text.find("\n  " + name + " ");
    ASSERT_NE(begin, std::string::npos) << name << " in " << text;
    const std::string line = text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
    TANREN_EXPECT_CONTAINS(line, fmt::format("[{}, {}]", run.parts.plan.batch.microbatch, shape));
    TANREN_EXPECT_CONTAINS(line, fmt::format(" {}  float32", count));
  };
  TANREN_EXPECT_CONTAINS(text, "inputs  [3, 2, 32, 32]  float32");
  expect_layer("generator.model.1", "4, 32, 32", 7 * 7 * 2 * 4 + 4);
  expect_layer("discriminator.scale1_layer0.0", "4, 17, 17", 4 * 4 * 5 * 4 + 4);  // all pixels
  expect_layer("discriminator.scale0_layer0.0", "4, 9, 9", 4 * 4 * 5 * 4 + 4);    // a quarter
  EXPECT_EQ(text.find("none are known"), std::string::npos) << text;
}

TEST(Pix2pixhdRun, takes_the_weight_of_l1_from_the_config) {
  RunConfig config = picture_config("global");
  TinyRun without(config);
  config.objectives["generator"].optimizer = config.optimizer;
  config.objectives["generator"].schedule = config.schedule;
  config.objectives["generator"].clip = config.clip;
  config.objectives["generator"].weights = {{"l1", 10}};
  TinyRun with(config);
  const StepReport plain = without.step(), weighted = with.step();
  ASSERT_EQ(weighted.objectives[0].terms.size(), 3u);
  double l1 = 0;
  for (const auto& [name, value] : weighted.objectives[0].terms) l1 = name == "l1" ? value : l1;
  EXPECT_GT(l1, 0);
  EXPECT_NEAR(weighted.objectives[0].loss, plain.objectives[0].loss + 10 * l1, 1e-9);
  EXPECT_NE(weighted.objectives[0].grad_norm, plain.objectives[0].grad_norm);
  EXPECT_EQ(weighted.objectives[1].loss, plain.objectives[1].loss);
}

TEST(Pix2pixhdRun, evaluates_to_the_loss_that_trains_the_generator) {
  RunConfig config = picture_config("global");
  config.batch.global_batch = "8";  // all samples
  config.objectives["generator"].optimizer = config.optimizer;
  config.objectives["generator"].schedule = config.schedule;
  config.objectives["generator"].clip = config.clip;
  std::vector<double> losses;
  for (const double weight : {0.0, 10.0}) {
    config.objectives["generator"].weights = {{"l1", weight}};
    TinyRun run(config);
    const EvaluationReport report = evaluate(run.state, run.parts, *run.dataset);
    EXPECT_EQ(report.values.front().first, "loss");
    losses.push_back(report.values.front().second);
    EXPECT_NEAR(losses.back(), run.step().objectives[0].loss, 1e-10 * losses.back());
  }
  EXPECT_GT(losses[1], losses[0] * 1.01);
}

TEST(Pix2pixhdRun, over_microbatches_and_ranks_equals_the_whole_batch) {
  for (const std::string size : {"global", "local"}) {
    RunConfig config = exact_config(size);
    TinyRun whole(config);
    const at::Tensor before = whole.weights();
    whole.steps(3);
    const at::Tensor expected = whole.weights();
    EXPECT_GT(relative(expected, before), 1e-4);
    config.batch.microbatch = 1;
    TinyRun split(config);
    split.steps(3);
    EXPECT_LT(relative(split.weights(), expected), 1e-10) << size;
    config.parallel.first_bucket_mb = config.parallel.bucket_mb = 4.0 / 1024;
    const auto data = open_dataset(config.data.train, "data.train");
    for (const std::string engine : {"threads", "gloo"}) {
      config.parallel.zero = engine == "gloo" ? 1 : 0;
      std::vector<at::Tensor> got(2);
      on_engine(engine, 2, [&](Communicator& comm) {
        RankRun run(config, *data, comm);
        for (int i = 0; i < 3; ++i) run.step();
        got[static_cast<size_t>(comm.rank())] = run.weights();
      });
      EXPECT_LT(relative(got[0], expected), 1e-10) << size << " on " << engine;
      EXPECT_TRUE(at::equal(got[0], got[1])) << size << " on " << engine;
    }
  }
}

TEST(Pix2pixhdRun, recomputed_or_in_another_order_of_memory_is_the_same) {
  for (const std::string size : {"global", "local"}) {
    RunConfig config = exact_config(size);
    TinyRun whole(config);
    whole.steps(3);
    config.memory.recompute = {"*"};
    TinyRun recomputed(config);
    recomputed.steps(3);
    EXPECT_TRUE(at::equal(recomputed.weights(), whole.weights())) << size;
    config.memory.recompute = {"generator.*"};
    TinyRun half(config);
    half.steps(3);
    EXPECT_TRUE(at::equal(half.weights(), whole.weights())) << size;
    config.memory.recompute.clear();
    config.model.memory_format = "channels_last";
    TinyRun last(config);
    last.steps(3);
    EXPECT_LT(relative(last.weights(), whole.weights()), 1e-10) << size;
  }
}

TEST(Pix2pixhdRun, in_16_bits_loses_nearly_as_in_fp32) {
  if (test_device() != "cpu") GTEST_SKIP() << "compares kernels of the CPU";
  for (const std::string size : {"global", "local"}) {
    const auto losses = [&](const std::string& mode) {
      RunConfig config = picture_config(size, mode);
      config.batch.microbatch = 2;
      config.precision.initial_scale = "64";  // overflows are skipped, which is another run
      TinyRun run(config);
      const auto report = run.steps(4).back();
      return std::pair(report.objectives[0].loss, report.objectives[1].loss);
    };
    const auto exact = losses("fp32");
    for (const std::string mode : {"bf16", "fp16"}) {
      const auto half = losses(mode);
      EXPECT_NEAR(half.first, exact.first, 0.05 * exact.first) << size << " in " << mode;
      EXPECT_NEAR(half.second, exact.second, 0.05 * exact.second) << size << " in " << mode;
    }
  }
}

// The generator's loss must not compute gradients of the discriminators' weights, and the
// discriminators' loss must not go back through the generator.
TEST(Pix2pixhdRun, goes_back_through_each_network_no_more_than_it_must) {
  TinyRun run(picture_config("global"));
  static std::atomic<int> of_weight, of_input, of_difference;
  of_weight = of_input = of_difference = 0;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
            const std::string name = fn.name();
            of_difference += name == "aten::sgn" ? 1 : 0;
            if (name != "aten::convolution_backward") return nullptr;
            const auto wanted = fn.inputs().back().toBoolList();
            of_input += wanted.get(0) ? 1 : 0;
            of_weight += wanted.get(1) ? 1 : 0;
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  run.step();
  at::removeCallback(handle);
  constexpr int kGenerator = 10, kDiscriminators = 10;  // convolutions
  // The generator's backward passes through the discriminators once. The discriminators' backward
  // passes through the graphs of the generated and of the real pictures.
  EXPECT_EQ(of_weight, kGenerator + 2 * kDiscriminators);
  // The first convolution of a network needs no gradient of its input, except for the generator's
  // loss.
  constexpr int kFirst = 2;  // one of each scale
  EXPECT_EQ(of_difference, 8) << "of features; l1, whose weight is 0, has no backward";
  EXPECT_EQ(of_input, kGenerator - 1 + kDiscriminators + 2 * (kDiscriminators - kFirst));
}

class Pix2pixhdPeaks : public StepPeaksTest {};

// Every eleventh allocation of a step with both networks fails once. Each run begins with another
// allocation.
TEST_F(Pix2pixhdPeaks, that_memory_does_not_reach_are_recovered) {
  install_cpu_allocator();
  RunConfig config = exact_config("global");
  config.memory.limit = "8GiB";
  TinyRun undisturbed(config);
  undisturbed.steps(2);
  int64_t recoveries = 0;
  bool failed = true;
  const int64_t stride = allocation_stride(11);
  for (int64_t index = first_allocation(stride); failed; index += stride) {
    TinyRun run(config);
    run.step();
    const GlobalBatch batch = run.loader->next();
    const int64_t live = cpu_memory_stats().live_bytes;
    fail_cpu_allocation(index);
    run.step(batch);
    failed = cpu_allocations_until_failure() < 0;
    fail_cpu_allocation(INT64_MAX);
    EXPECT_EQ(cpu_memory_stats().live_bytes, live) << index;
    EXPECT_LT(relative(run.weights(), undisturbed.weights()), 1e-10) << index;
    recoveries += run.parts.recovery->num_failures();
  }
  EXPECT_GT(recoveries, 30);
}

TEST_F(Pix2pixhdPeaks, are_predicted) {
  for (const std::string size : {"global", "local"}) {
    for (const std::string mode : {"fp32", "bf16", "fp16", "fp64"}) {
      if (size == "local" && (mode == "fp16" || mode == "fp64")) continue;  // they take long
      RunConfig config = picture_config(size, mode);
      config.precision.initial_scale = "64";
      config.memory.limit = "16GiB";  // installs our allocator, under a sanitizer too
      config.model.generator_channels = config.model.discriminator_channels = 16;
      config.data.train.fields = {"inputs: float[3,48,48] in [-1, 1]",
                                  "labels: float[3,48,48] in [-1, 1]"};
      config.batch.global_batch = "2";
      const auto expect = [&](const char* what) {
        const StepPeaks peaks = step_peaks(config);
        std::printf("%-6s %s %-12s predicted %10lld, measured %10lld, %+.2f %%\n", size.c_str(),
                    mode.c_str(), what, static_cast<long long>(peaks.predicted),
                    static_cast<long long>(peaks.measured), 100 * peaks.error());
        EXPECT_LE(std::abs(peaks.error()), 0.03) << size << " " << mode << " " << what;
      };
      expect("whole");
      config.batch.microbatch = 1;
      expect("accumulated");
      config.memory.recompute = {"*"};
      expect("recomputed");
    }
  }
}

// Writes the layers of a vgg19 that a perceptual loss reads, with random weights.
void write_vgg19(const fs::path& file) {
  TensorMap tensors;
  int64_t in = 3, index = 0;
  for (const int64_t out :
       {64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512}) {
    const std::string name = fmt::format("features.{}.", index++);
    if (out == 0) continue;
    tensors.set(name + "weight", (0.02 * at::randn({out, in, 3, 3})).to(at::kBFloat16));
    tensors.set(name + "bias", at::zeros({out}, at::kBFloat16));
    ++index;  // the activation
    in = out;
  }
  write_safetensors(file, tensors);
}

TEST_F(Pix2pixhdPeaks, with_a_perceptual_loss_are_predicted_and_any_split_is_exact) {
  const TemporaryFolder folder;
  write_vgg19(folder.path() / "vgg19.safetensors");
  RunConfig config = exact_config("global");
  config.model.perceptual = (folder.path() / "vgg19.safetensors").string();
  {
    TinyRun whole(config);
    const auto report = whole.steps(2).back();
    EXPECT_EQ(report.objectives[0].terms.back().first, "perceptual");
    config.batch.microbatch = 1;
    TinyRun split(config);
    split.steps(2);
    EXPECT_LT(relative(split.weights(), whole.weights()), 1e-10);
  }
  config.memory.limit = "16GiB";  // installs our allocator, under a sanitizer too
  config.batch.microbatch = 2;
  config.run.steps = 2;
  for (const std::string mode : {"fp32", "bf16", "fp64"}) {
    config.precision.mode = mode;
    const StepPeaks peaks = step_peaks(config);
    EXPECT_LE(std::abs(peaks.error()), 0.03) << mode;
    const auto summary = run({.config = config, .folder = folder.path() / mode}, {}).summary;
    ASSERT_TRUE(summary.predicted_peak_bytes.has_value());
    // A run adds its data to the prediction. The constants are part of the data and are not counted
    // again.
    EXPECT_LT(*summary.predicted_peak_bytes - peaks.predicted, 1 << 20) << mode;
  }
}

// --- NVIDIA's files

class Pix2pixhdFiles : public ::testing::Test {
 protected:
  RunConfig parsed(const std::string& more) const {
    return parse_config(
        "[model]\nkind = \"pix2pixhd\"\ngenerator_channels = 4\nnum_downsamplings = 2\n"
        "num_blocks = 2\ndiscriminator_channels = 4\n" +
            more +
            "\n[data.train]\nkind = \"synthetic\"\nfields = [\"inputs: float[2,32,32] in [-1, "
            "1]\", \"labels: float[3,32,32] in [-1, 1]\"]\nsamples = 6\n[batch]\nglobal_batch = "
            "3\n[precision]\nmode = \"fp32\"\n[run]\nname = \"p\"\nsteps = 2\nthreads = 1\n"
            "[evaluate]\nevery = 1\nmetrics = [\"mae\"]\n",
        "p.toml", folder_.path(), {}, ModelRegistry().kinds());
  }
  static Task task() {
    const RunConfig config = picture_config("global");
    const auto data = open_dataset(config.data.train, "data.train");
    return build_task(config, ModelRegistry(), *data);
  }
  fs::path nvidias() const { return kFixtures + "pix2pixhd"; }

  TemporaryFolder folder_;
};

TEST_F(Pix2pixhdFiles, start_a_model) {
  const Task given = task();
  ModelOptions options;
  options.init_from = nvidias().string();
  const InitReport report = init_from_file(*given.module, options);
  const TensorMap fixture = fixture_of("global");
  for (const auto& item : given.module->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), fixture.at(item.key()))) << item.key();
  }
  EXPECT_EQ(report.loaded, static_cast<int64_t>(given.module->parameters().size()));
}

TEST_F(Pix2pixhdFiles, without_discriminators_leave_these_as_they_are) {
  fs::copy(nvidias() / "latest_net_G.pth", folder_.path() / "latest_net_G.pth");
  const Task given = task();
  const at::Tensor own =
      given.module->named_parameters()["discriminator.scale0_layer0.0.weight"].clone();
  ModelOptions options;
  options.init_from = folder_.path().string();
  const InitReport report = init_from_file(*given.module, options);
  EXPECT_TRUE(
      at::equal(own, given.module->named_parameters()["discriminator.scale0_layer0.0.weight"]));
  TANREN_EXPECT_CONTAINS(report.text(""), "there is no latest_net_D.pth");
  TANREN_EXPECT_CONTAINS(report.text(""), "newly initialised: discriminator.");
}

TEST_F(Pix2pixhdFiles, of_a_global_generator_start_a_local_one_of_half_its_channels) {
  RunConfig config = picture_config("local");
  config.model.generator_channels = 2;
  const auto data = open_dataset(config.data.train, "data.train");
  const Task given = build_task(config, ModelRegistry(), *data);
  ModelOptions options;
  options.init_from = nvidias().string();
  options.init_skip = {"generator.model1_*", "generator.model.19.*"};
  init_from_file(*given.module, options);
  const TensorMap fixture = fixture_of("global");
  for (const auto& item : given.module->named_parameters()) {
    if (item.key().starts_with("generator.model1_")) continue;
    EXPECT_TRUE(at::equal(item.value(), fixture.at(item.key()))) << item.key();
  }
}

TEST_F(Pix2pixhdFiles, of_old_versions_have_statistics_that_are_left_out) {
  TensorMap old = read_pt(nvidias() / "latest_net_G.pth").content.tensors;
  old.set("model.2.running_mean", at::zeros({4}));
  old.set("model.2.running_var", at::ones({4}));
  write_pt(folder_.path() / "latest_net_G.pth", old);
  const Task given = task();
  ModelOptions options;
  options.init_from = folder_.path().string();
  TANREN_EXPECT_CONTAINS(init_from_file(*given.module, options).text(""),
                         "left out 2 running statistics");
}

TEST_F(Pix2pixhdFiles, that_do_not_fit_are_listed) {
  TensorMap other = read_pt(nvidias() / "latest_net_G.pth").content.tensors;
  other.set("model.1.weight", at::zeros({8, 2, 7, 7}));
  write_pt(folder_.path() / "latest_net_G.pth", other);
  const Task given = task();
  ModelOptions options;
  options.init_from = folder_.path().string();
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] { init_from_file(*given.module, options); }),
                         "generator.model.1.weight is [8, 2, 7, 7] Float, here [4, 2, 7, 7]");
}

TEST_F(Pix2pixhdFiles, are_written_of_a_run_and_read_back_as_the_same_model) {
  const RunConfig config = parsed("init_from = \"" + nvidias().string() + "\"");
  run({.config = config, .folder = folder_.path() / "run"}, {});
  const auto written =
      write_python_folder(folder_.path() / "run", folder_.path() / "out", std::nullopt, {});
  EXPECT_EQ(written.files, (std::vector<std::string>{"latest_net_G.pth", "latest_net_D.pth"}));
  const WholeModel whole = load_model(folder_.path() / "run" / "model.tanren.safetensors");
  const Task given = task();
  ModelOptions options;
  options.init_from = (folder_.path() / "out").string();
  init_from_file(*given.module, options);
  const TensorMap before = fixture_of("global");
  const auto trained = whole.task.module->named_parameters();
  for (const auto& item : given.module->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), trained[item.key()])) << item.key();
  }
  EXPECT_FALSE(
      at::equal(trained["generator.model.1.weight"], before.at("generator.model.1.weight")));
  const auto names = read_pt(folder_.path() / "out" / "latest_net_G.pth").content.tensors;
  for (const auto& item : read_pt(nvidias() / "latest_net_G.pth").content.tensors) {
    EXPECT_NE(names.find(item.first), nullptr) << item.first;
  }
}

TEST_F(Pix2pixhdFiles, of_a_whole_model_have_the_weights_of_its_loss) {
  const fs::path folder = folder_.path() / "run";
  const std::string fields =
      "fields = [\"inputs: float[2,32,32] in [-1, 1]\", \"labels: float[3,32,32] in [-1, 1]\"]";
  const RunConfig config = parsed(
      "[objectives.generator]\nweights = { l1 = 10 }\n[data.eval]\nkind = \"synthetic\"\n"
      "samples = 4\n" +
      fields);
  const auto loss_of = [](const Evaluated& evaluated) {
    EXPECT_EQ(evaluated.report.values.front().first, "loss");
    return evaluated.report.values.front().second;
  };
  run({.config = config, .folder = folder}, {});
  const double of_run =
      loss_of(evaluate_checkpoint(config, folder / "model.safetensors", Registry(), nullptr));
  const fs::path file = folder / "model.tanren.safetensors";
  EXPECT_EQ(loss_of(evaluate_whole_model(file, "", {}, Registry(), nullptr)), of_run);
  EXPECT_NE(loss_of(evaluate_whole_model(file, "", {"objectives.generator.weights.l1=0"},
                                         Registry(), nullptr)),
            of_run);
}

}  // namespace
}  // namespace tanren::testing
