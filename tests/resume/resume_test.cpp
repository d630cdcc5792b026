// Stop + resume ≡ no stop, bitwise: weights, optimizer, and the joined log.
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/metrics/event_reader_test_util.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <regex>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

// A fresh folder for each test.
class Resume : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() /
            ("tanren-" + std::string(test->name()) + "-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  RunOutput go(const RunConfig& config, const std::string& folder, std::vector<Sink*> sinks = {},
               const std::atomic<bool>* stop = nullptr) {
    RunInput input;
    input.config = config;
    input.folder = root_ / folder;
    input.sinks = std::move(sinks);
    input.stop = stop;
    return run(input, test_registry());
  }

  // The log without its timings.
  std::string log(const std::string& folder) {
    static const std::regex timing(R"(,"timing":\{[^}]*\})");
    return std::regex_replace(read_file(root_ / folder / "log.jsonl"), timing, "");
  }

  void expect_equal(const std::string& a, const std::string& b) {
    EXPECT_EQ(log(a), log(b));
    const auto one = read_checkpoint(*latest_checkpoint(root_ / a / "checkpoints"));
    const auto other = read_checkpoint(*latest_checkpoint(root_ / b / "checkpoints"));
    for (const auto& [name, tensor] : one.model.tensors) {
      EXPECT_TRUE(at::equal(tensor, other.model.tensors.at(name))) << name;
    }
    for (const auto& [name, tensor] : one.optimizer.tensors) {
      EXPECT_TRUE(at::equal(tensor, other.optimizer.tensors.at(name))) << name;
    }
    ASSERT_EQ(one.average.tensors.size(), other.average.tensors.size());
    for (const auto& [name, tensor] : one.average.tensors) {
      EXPECT_TRUE(at::equal(tensor, other.average.tensors.at(name))) << name;
    }
    EXPECT_EQ(one.average.values, other.average.values);
    EXPECT_EQ(one.run.values, other.run.values);
  }

  fs::path root_;
};

RunConfig resumable_config() {
  auto config = tiny_config("convnet");
  config.run.steps = 9;
  config.model.dropout = 0.3;
  config.model.norm = "batch";
  config.precision.mode = "fp16";
  config.precision.initial_scale = "4294967296";  // 2^32: the first attempts overflow
  config.precision.growth_interval = 3;
  config.schedule.kind = "cosine";
  config.clip.norm = 1;
  config.guard.spike_z = 0.001;  // about every second update is a spike
  config.guard.spike_window = 2;
  config.data.workers = 2;
  config.data.prefetch = 3;
  config.data.eval = config.data.train;
  config.evaluate.every = 2;
  config.checkpoint.every = 4;
  return config;
}

TEST_F(Resume, by_stop_after_at_every_step_is_bitwise_the_undisturbed_run) {
  const auto config = resumable_config();
  const auto whole = go(config, "whole");
  EXPECT_GT(whole.summary.skipped_steps, 0);
  EXPECT_NE(log("whole").find("\"cause\":\"spike\""), std::string::npos);
  for (const int64_t step : {1, 4, 7}) {
    const std::string folder = "stopped-" + std::to_string(step);
    auto first = config;
    first.run.stop_after = step;
    EXPECT_EQ(go(first, folder).loop.ending, Ending::stopped);
    auto second = config;
    second.data.workers = 3;  // another loader, another prefetch depth: the same stream
    second.data.prefetch = 7;
    EXPECT_EQ(go(second, folder).loop.ending, Ending::finished);
    expect_equal("whole", folder);
  }
}

// huggingface/transformers#40560: rates after a resume included samples of earlier sessions.
TEST_F(Resume, draws_each_step_once_and_counts_this_session_alone) {
  auto config = resumable_config();
  const auto whole = go(config, "whole");
  config.run.stop_after = 7;
  go(config, "lost");
  fs::remove_all(root_ / "lost" / "checkpoints" / "step-7");  // as if it crashed before writing it
  config.run.stop_after.reset();
  const auto rest = go(config, "lost");
  const auto one = read_curves(root_ / "whole" / "tensorboard");
  const auto other = read_curves(root_ / "lost" / "tensorboard");
  for (const char* tag : {"train/loss", "train/learning_rate", "train/grad_norm", "evaluate/loss",
                          "train/loss_scale", "train/skipped_steps"}) {
    EXPECT_EQ(one.at(tag), other.at(tag)) << tag;
  }
  EXPECT_EQ(one.at("train/loss").size(), 9u);
  EXPECT_EQ(other.at("speed/samples_per_second").size(), 9u);
  EXPECT_LT(rest.loop.session_samples, whole.loop.session_samples);
  EXPECT_NEAR(rest.summary.samples_per_second * rest.loop.train_seconds,
              static_cast<double>(rest.loop.session_samples), 1e-6);
}

// Every kind of optimizer, and variants that keep more state.
std::vector<OptimizerOptions> optimizers() {
  std::vector<OptimizerOptions> all;
  for (const char* kind :
       {"adam", "nadam", "radam", "adagrad", "rmsprop", "adafactor", "lion", "muon", "sgd"}) {
    all.emplace_back().kind = kind;
  }
  all.emplace_back().amsgrad = true;
  OptimizerOptions rmsprop;
  rmsprop.kind = "rmsprop";
  rmsprop.momentum = 0.9;
  rmsprop.centered = true;
  rmsprop.layer_decay = 0.8;
  all.push_back(rmsprop);
  return all;
}

TEST_F(Resume, is_bitwise_with_any_optimizer_and_a_schedule_that_depends_on_evaluations) {
  auto config = resumable_config();
  config.precision.mode = "fp32";
  config.precision.initial_scale = "auto";
  config.precision.growth_interval = 2000;
  config.schedule = {};
  config.schedule.kind = "reduce_on_plateau";
  config.schedule.patience = 1;
  config.schedule.threshold = 0.9;
  config.clip.value = 0.01;
  config.evaluate.every = 1;
  int variant = 0;
  for (const auto& optimizer : optimizers()) {
    SCOPED_TRACE(optimizer.kind);
    config.optimizer = optimizer;
    const std::string name = "v" + std::to_string(variant++);
    go(config, name + "-whole");
    auto first = config;
    first.run.stop_after = 5;
    go(first, name + "-stopped");
    go(config, name + "-stopped");
    expect_equal(name + "-whole", name + "-stopped");
    const auto end = read_checkpoint(*latest_checkpoint(root_ / (name + "-whole") / "checkpoints"));
    double scale = 1;
    for (const auto& [key, value] : end.run.values) {
      if (key.ends_with(".schedule.scale")) scale = std::get<double>(value);
    }
    EXPECT_NEAR(scale, 1e-4, 1e-12);  // after evaluations 3, 5, 7 and 9 of 9
    // The size of the state in the plan is its real size.
    double bytes = 0, trained = 0;
    for (const auto& [key, tensor] : end.optimizer.tensors) bytes += double(tensor.nbytes());
    for (const auto& [key, tensor] : end.model.tensors) {
      const bool is_buffer =
          key.find("running_") != std::string::npos || key.find("num_batches") != std::string::npos;
      trained += is_buffer ? 0 : double(tensor.numel());
    }
    const std::string told = to_text(std::round(bytes / trained * 100) / 100) +
                             " bytes per trained parameter, " + bytes_text(bytes);
    EXPECT_NE(end.plan_text.find(told), std::string::npos) << told << "\n" << end.plan_text;
  }
}

// Requests a stop when attempt `attempt` is reported.
class StopAt final : public Sink {
 public:
  StopAt(int64_t attempt, std::atomic<bool>& stop) : attempt_(attempt), stop_(stop) {}
  void step(const StepReport& report) override {
    if (report.attempt == attempt_) stop_ = true;
  }

 private:
  int64_t attempt_;
  std::atomic<bool>& stop_;
};

TEST_F(Resume, by_a_stop_request_in_any_attempt_is_bitwise_the_undisturbed_run) {
  const auto config = resumable_config();
  go(config, "whole");
  for (const int64_t attempt : {1, 10, 18}) {
    const std::string folder = "interrupted-" + std::to_string(attempt);
    std::atomic<bool> stop{false};
    StopAt sink(attempt, stop);
    EXPECT_EQ(go(config, folder, {&sink}, &stop).loop.ending, Ending::interrupted);
    go(config, folder);
    expect_equal("whole", folder);
  }
}

// With averages, ranking and the count of early stop: the log, all remaining checkpoints and the
// exported weights equal those of the undisturbed run.
TEST_F(Resume, with_averages_best_checkpoints_and_early_stop_is_bitwise_the_undisturbed_run) {
  for (const std::string kind : {"ema", "swa"}) {
    auto config = resumable_config();
    config.run.steps = 30;
    config.average.kind = kind;
    config.average.every = 2;
    config.average.start = "2";
    config.optimizer.learning_rate = 0.05;
    config.checkpoint.best = 2;
    config.checkpoint.metric = "accuracy";
    config.evaluate.metrics = {"accuracy"};
    config.early_stop.patience = 3;
    config.early_stop.min_delta = 1.0;
    const std::string whole = "whole-" + kind;
    const auto undisturbed = go(config, whole);
    ASSERT_LT(undisturbed.summary.steps, 30) << "it must stop early to show anything";
    EXPECT_FALSE(undisturbed.summary.reason.empty());
    for (const int64_t step : {1, 3, 4, 6}) {
      const std::string folder = kind + "-" + std::to_string(step);
      auto first = config;
      first.run.stop_after = step;
      go(first, folder);
      const auto rest = go(config, folder);
      expect_equal(whole, folder);
      EXPECT_EQ(rest.summary.reason, undisturbed.summary.reason);
      EXPECT_EQ(rest.summary.best_step, undisturbed.summary.best_step);
      EXPECT_EQ(read_file(root_ / folder / "model.safetensors"),
                read_file(root_ / whole / "model.safetensors"));
      EXPECT_EQ(fs::read_symlink(root_ / folder / "checkpoints/best"),
                fs::read_symlink(root_ / whole / "checkpoints/best"));
    }
  }
}

TEST_F(Resume, by_a_stop_request_between_microsteps_leaves_no_trace_of_the_window) {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.batch.microbatch = 6;
  TinyRun run(config);
  const auto weights = run.weights();
  std::vector<at::Tensor> buffers;
  for (const auto& buffer : run.state.task.module->buffers()) buffers.push_back(buffer.clone());
  const std::atomic<bool> stop{true};
  run.parts.stop = &stop;
  const auto batch = run.loader->next();
  EXPECT_FALSE(update(run.state, run.parts, batch).has_value());
  EXPECT_EQ(run.state.attempt, 0);
  EXPECT_EQ(run.state.consumed, 0);
  EXPECT_TRUE(at::equal(run.weights(), weights));
  const auto after = run.state.task.module->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(at::equal(after[i], buffers[i])) << i;
}

TEST_F(Resume, after_a_crash_cuts_the_log_back_to_the_checkpoint) {
  const auto config = resumable_config();
  go(config, "whole");
  // Simulates a crash: a sink throws, and the checkpoint that this error leaves is removed below.
  struct Crash final : Sink {
    void step(const StepReport& report) override {
      if (report.step == 7) throw RunError("crash");
    }
  } crash;
  EXPECT_THROW(go(config, "crashed", {&crash}), RunError);
  std::filesystem::remove_all(root_ / "crashed" / "checkpoints" / "step-7");
  ASSERT_EQ(latest_checkpoint(root_ / "crashed" / "checkpoints")->filename(), "step-4");
  go(config, "crashed");
  expect_equal("whole", "crashed");
}

TEST_F(Resume, by_growing_the_length_goes_on_where_a_finished_run_ended) {
  auto config = resumable_config();
  config.evaluate.every = 0;
  config.data.eval = {};
  config.schedule.kind = "constant";
  go(config, "whole");
  auto half = config;
  half.run.steps = 5;
  go(half, "grown");
  EXPECT_THROW(go(half, "grown"), ConfigError);
  go(config, "grown");
  expect_equal("whole", "grown");
}

TEST_F(Resume, refuses_another_config_and_names_the_keys) {
  auto config = resumable_config();
  config.run.stop_after = 1;
  go(config, "run");
  config.optimizer.learning_rate = 0.5;
  try {
    go(config, "run");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.learning_rate: 0.01 → 0.5"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Resume, refuses_the_checkpoint_of_another_model_listing_names_and_shapes) {
  auto config = resumable_config();
  config.run.stop_after = 1;
  go(config, "run");
  const auto snapshot = read_checkpoint(*latest_checkpoint(root_ / "run" / "checkpoints"));
  auto other = tiny_config("mlp");
  TinyRun run(other);
  try {
    run.state.load(run.parts.device, snapshot.model, snapshot.optimizer, snapshot.run);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("missing "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("unexpected "), std::string::npos) << error.what();
  }
}

TEST_F(Resume, a_generator_drawn_from_by_the_model_goes_on_too) {
  struct Noisy : torch::nn::Module {
    Noisy() { weight = register_parameter("weight", at::ones({8})); }
    at::Tensor weight;
  };
  const auto with_noise = [] {
    auto net = std::make_shared<Noisy>();
    Task task;
    task.module = net;
    PhaseSpec phase;
    phase.forward = [net](const Batch& batch) -> Terms {
      return {
          {"noise", (at::dropout(net->weight, 0.5, true) * batch["inputs"].mean()).pow(2).sum() *
                        static_cast<double>(batch.size())}};
    };
    task.phases = {phase};
    return task;
  };
  auto config = tiny_config("mlp");
  at::manual_seed(5);
  TinyRun whole(config, nullptr, with_noise());
  whole.steps(6);
  at::manual_seed(5);
  TinyRun first(config, nullptr, with_noise());
  first.steps(3);
  State model;
  model.tensors = first.state.model_tensors();
  const auto optimizer = first.state.optimizer_state(),
             run_values = first.state.run_state(first.parts.device);
  at::manual_seed(99);
  TinyRun second(config, nullptr, with_noise());
  second.state.load(second.parts.device, model, optimizer, run_values);
  second.use_loader(0, 1);
  second.steps(3);
  EXPECT_TRUE(at::equal(second.weights(), whole.weights()));
}

TEST_F(Resume, with_loader_threads_at_work_is_bitwise_at_any_workers_and_prefetch_depth) {
  auto config = resumable_config();
  TinyRun whole(config);
  whole.steps(12);
  TinyRun first(config);
  first.use_loader(2, 5);  // prefetches up to five batches more than are consumed
  first.steps(5);
  State model;
  model.tensors = first.state.model_tensors();
  TinyRun second(config);
  second.state.load(second.parts.device, model, first.state.optimizer_state(),
                    first.state.run_state(first.parts.device));
  second.use_loader(3, 2);
  second.steps(7);
  EXPECT_TRUE(at::equal(second.weights(), whole.weights()));
  EXPECT_EQ(second.state.epoch, whole.state.epoch);
  EXPECT_EQ(second.state.consumed, whole.state.consumed);
}

// Runs the real program and sends it a real signal.
int run_program(const std::vector<std::string>& arguments, const fs::path& log, int64_t lines) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<char*> argv;
    std::string program = TANREN_BINARY;
    argv.push_back(program.data());
    auto copy = arguments;
    for (auto& argument : copy) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(TANREN_BINARY, argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    std::error_code error;
    if (lines > 0 && fs::exists(log, error)) {
      const std::string text = read_file(log);
      if (std::count(text.begin(), text.end(), '\n') >= lines) {
        ::kill(child, SIGINT);
        lines = 0;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Resume, of_the_program_after_sigint_in_mid_epoch_joins_the_log_bit_for_bit) {
  const std::string config = TANREN_SOURCE_DIR "/examples/digits/run.toml";
  const auto arguments = [&](const std::string& folder) {
    return std::vector<std::string>{"run",
                                    config,
                                    "--quiet",
                                    "--out",
                                    (root_ / folder).string(),
                                    "--set",
                                    "run.epochs=2",
                                    "--set",
                                    "run.threads=1",
                                    "--set",
                                    "precision.mode=bf16",
                                    "--set",
                                    "model.channels=[16,32]",
                                    "--set",
                                    "batch.global_batch=16"};
  };
  ASSERT_EQ(run_program(arguments("whole"), {}, 0), 0);
  ASSERT_EQ(run_program(arguments("cut"), root_ / "cut" / "log.jsonl", 20), 130);
  const auto cut = log("cut");
  EXPECT_LT(cut.size(), log("whole").size());
  ASSERT_EQ(run_program({"run", (root_ / "cut").string(), "--quiet"}, {}, 0), 0);
  expect_equal("whole", "cut");
}

}  // namespace
}  // namespace tanren::testing
