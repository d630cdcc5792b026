#include "tanren/plan/planner.h"

#include "tanren/base/error.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"
#include "tanren/plan/print.h"
#include "tanren/plan/probe_machine.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace tanren {
namespace {

struct Given {
  RunConfig config;
  Machine machine;
  ModelProfile profile;

  Given() {
    config.run.epochs = 2;
    config.model.kind = "mlp";
    profile.train_samples = 100;
    machine.cores = 4;
  }
  Plan plan() const { return make_plan(config, machine, profile); }
  // The printed line of `key` as "value|source|reason".
  std::string line(const std::string& key) const {
    for (const auto& line : plan().lines) {
      if (line.key != key) continue;
      const char* source = line.source == Source::asked     ? "asked"
                           : line.source == Source::planned ? "planned"
                                                            : "default";
      return line.value + "|" + source + "|" + line.reason;
    }
    return "no line " + key;
  }
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "in: " << text << "\nmissing: " << part;
}

TEST(DevicePass, refuses_a_device_that_is_not_there) {
  Given given;
  given.config.run.device = "cuda:1";
  given.machine.accelerators.bytes = {0};
  EXPECT_THROW(given.plan(), ConfigError);
  given.config.run.device = "cuda";
  EXPECT_EQ(given.plan().device.device, "cuda:0");
  given.config.run.device = "auto";
  EXPECT_EQ(given.plan().device.device, "cuda:0");
  given.machine.accelerators.bytes.clear();
  EXPECT_EQ(given.plan().device.device, "cpu");
}

TEST(DevicePass, takes_the_cores_of_the_process_unless_asked) {
  Given given;
  EXPECT_EQ(given.plan().device.threads, 4);
  given.config.run.threads = 3;
  EXPECT_EQ(given.plan().device.threads, 3);
}

TEST(MemoryPass, stands_aside_for_the_address_sanitizer_even_if_asked) {
  Given given;
  given.machine.address_sanitizer = true;
  EXPECT_FALSE(given.plan().memory.cached_allocator);
  given.config.memory.allocator = "cached";
  EXPECT_FALSE(given.plan().memory.cached_allocator);
  expect_contains(given.line("allocator"), "default|planned|a cache would hide a use after free");
}

TEST(DevicePass, tells_the_workspace_of_each_capability) {
  Given given;
  given.machine.accelerators.bytes = {0, 0, 0, 0};
  given.machine.accelerators.capabilities = {9, 8, 0};  // the last is not known at all
  const auto workspace = [&](const std::string& device) {
    given.config.run.device = device;
    return given.plan().device.workspace_bytes;
  };
  EXPECT_EQ(workspace("cuda:0"), 32 << 20);
  EXPECT_EQ(workspace("cuda:1"), (8 << 20) + (128 << 10));
  EXPECT_EQ(workspace("cuda:2"), 32 << 20);
  EXPECT_EQ(workspace("cuda:3"), 32 << 20);
  EXPECT_EQ(workspace("cpu"), 0);
  given.config.run.deterministic = true;
  EXPECT_EQ(workspace("cuda:1"), 32 << 20) << "CUBLAS_WORKSPACE_CONFIG";
  given.machine.accelerators.kind = "sim";
  EXPECT_EQ(workspace("sim:1"), 0);
}

TEST(MemoryPass, on_an_accelerator_the_limit_is_a_share_also_where_bytes_are_asked) {
  Given given;
  given.machine.accelerators.bytes = {int64_t{80} << 30, int64_t{16} << 30};
  const struct {
    const char *device, *limit;
    double share;
    int64_t gibibytes;
    const char* line;
  } rows[] = {
      {"cuda", "0.5", 0.5, 40, "40 GiB|asked|0.5 of the device's memory"},
      {"cuda", "8GiB", 0.1, 8, "8.0 GiB|asked|0.1 of the device's 80 GiB, as a share"},
      {"cuda:1", "8GiB", 0.5, 8, "8.0 GiB|asked|0.5 of the device's 16 GiB"},
      {"cuda:1", "80GiB", 1, 16, "16 GiB|asked|80 GiB is more than the 16 GiB that the device has"},
      {"cuda", "none", 0, 0, "none|asked|"},
      {"cuda", "auto", 0, 80, "80 GiB|planned|what the device has"},
  };
  for (const auto& row : rows) {
    given.config.run.device = row.device;
    given.config.memory.limit = row.limit;
    given.config.asked = {"memory.limit"};
    if (std::string(row.limit) == "auto") given.config.asked.clear();
    EXPECT_DOUBLE_EQ(given.plan().memory.limit_share, row.share) << row.limit;
    EXPECT_EQ(given.plan().memory.limit_bytes, row.gibibytes << 30) << row.limit;
    expect_contains(given.line("memory_limit"), row.line);
  }
  given.machine.accelerators.bytes = {0, 0};
  given.config.memory.limit = "8GiB";
  EXPECT_THROW(given.plan(), ConfigError);
}

TEST(MemoryPass, limits_tensors_to_what_is_asked_or_to_most_of_the_machine) {
  Given given;
  given.config.run.device = "cpu";
  given.machine.memory_bytes = int64_t{10} << 30;
  EXPECT_EQ(given.plan().memory.limit_bytes, int64_t{9} << 30);
  given.machine.local_ranks = 2;
  EXPECT_EQ(given.plan().memory.limit_bytes, (int64_t{9} << 30) / 2);
  given.machine.local_ranks = 1;
  given.config.memory.limit = "0.5";
  EXPECT_EQ(given.plan().memory.limit_bytes, int64_t{5} << 30);
  given.config.memory.limit = "20GiB";
  EXPECT_EQ(given.plan().memory.limit_bytes, int64_t{20} << 30);
  expect_contains(given.line("memory_limit"), "more than the 10 GiB that machine");
  given.config.memory.limit = "none";
  EXPECT_EQ(given.plan().memory.limit_bytes, 0);
  expect_contains(given.line("memory_limit"), "none|");
}

TEST(MemoryPass, a_limit_brings_the_allocator_that_knows_it) {
  Given given;
  given.config.run.device = "cpu";
  given.config.memory.allocator = "default";
  EXPECT_FALSE(given.plan().memory.own_allocator);
  EXPECT_EQ(given.plan().memory.limit_bytes, 0);
  given.config.memory.limit = "4GiB";
  EXPECT_TRUE(given.plan().memory.own_allocator);
  EXPECT_FALSE(given.plan().memory.cached_allocator);
}

TEST(MemoryPass, moves_activations_to_the_host_where_they_are_not_there_already) {
  Given given;
  EXPECT_TRUE(given.plan().memory.offload.empty());
  given.config.memory.offload = {"layers.*"};
  given.config.run.device = "cpu";
  EXPECT_TRUE(given.plan().memory.offload.empty());
  expect_contains(given.line("offload"), "none|");
  expect_contains(given.line("offload"), "in host memory already");
  given.config.run.device = "cuda";
  given.machine.accelerators.bytes = {0};
  EXPECT_EQ(given.plan().memory.offload, std::vector<std::string>{"layers.*"});
  expect_contains(given.line("offload"), "layers.*|");
}

TEST(MemoryPass, recovers_in_the_same_split_where_samples_see_one_another) {
  Given given;
  EXPECT_EQ(given.plan().memory.recovery, RecoveryMode::split);
  given.profile.couples_samples = true;
  EXPECT_EQ(given.plan().memory.recovery, RecoveryMode::same_split);
  expect_contains(given.line("recovery"), "batch norm sees its microbatch");
  given.config.memory.recovery = "split";
  EXPECT_EQ(given.plan().memory.recovery, RecoveryMode::split);
  expect_contains(given.line("recovery"), "the numbers change where it happens");
}

TEST(MemoryPass, caches_where_the_tensors_are_and_where_it_is_asked_to) {
  Given given;
  given.config.run.device = "cpu";
  EXPECT_TRUE(given.plan().memory.cached_allocator);
  expect_contains(given.line("allocator"), "cached|planned|");
  given.config.memory.allocator = "default";
  given.config.asked.insert("memory.allocator");
  EXPECT_FALSE(given.plan().memory.cached_allocator);
  expect_contains(given.line("allocator"), "default|asked|");
  given.config.run.device = "cuda";
  given.machine.accelerators.bytes = {0};
  given.config.memory.allocator = "auto";
  EXPECT_FALSE(given.plan().memory.cached_allocator);
  given.config.memory.allocator = "cached";
  EXPECT_TRUE(given.plan().memory.cached_allocator);
}

TEST(MemoryFormatPass, refuses_channels_last_for_a_model_without_convolutions) {
  Given given;
  given.config.model.memory_format = "channels_last";
  EXPECT_THROW(given.plan(), ConfigError);
  given.config.model.memory_format = "auto";
  EXPECT_EQ(given.line("memory_format"), "no line memory_format");
}

TEST(MemoryFormatPass, takes_channels_last_where_it_was_measured_faster) {
  Given given;
  given.profile.parameters = {{"conv1.weight", {64, 3, 7, 7}}};
  const auto chosen = [&](const char* kind, const char* norm, const char* mode) {
    given.config.model.kind = kind;
    given.config.model.norm = norm;
    given.config.precision.mode = mode;
    std::string line = given.line("memory_format");
    EXPECT_EQ(given.plan().memory.channels_last, line.rfind("channels_last|", 0) == 0);
    return line;
  };
  expect_contains(chosen("resnet", "group", "bf16"), "channels_last|planned|oneDNN");
  expect_contains(chosen("vgg", "group", "fp32"), "channels_last|planned|oneDNN");
  expect_contains(chosen("convnet", "batch", "bf16"), "channels_last|planned|");
  expect_contains(chosen("convnet", "group", "bf16"), "contiguous|planned|group norm");
  expect_contains(chosen("pix2pixhd", "group", "fp32"), "contiguous|planned|instance norm");
  expect_contains(chosen("resnet", "group", "fp64"), "contiguous|planned|fp64");
  expect_contains(chosen("own", "group", "bf16"), "contiguous|planned|a model of your own");
  given.machine.accelerators.bytes = {0};
  given.machine.accelerators.bf16 = true;
  expect_contains(chosen("convnet", "group", "bf16"), "channels_last|planned|cuDNN");
  expect_contains(chosen("resnet", "group", "fp32"), "contiguous|planned|cuDNN");
  given.config.model.memory_format = "channels_last";
  expect_contains(chosen("own", "group", "fp32"), "channels_last|asked|");
}

TEST(EvaluationPass, refuses_a_metric_that_does_not_fit_the_task) {
  const auto refused = [](const std::string& metric, const ModelProfile& task) {
    Given given;
    given.profile.metrics = task.metrics;
    given.profile.classes = task.classes;
    given.config.evaluate.metrics = {metric};
    try {
      given.plan();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const ModelProfile classes{.metrics = class_metrics(), .classes = 5};
  const ModelProfile values{.metrics = value_metrics()};
  expect_contains(refused("auroc", values),
                  "[plan] evaluate.metrics has \"auroc\", which does not");
  expect_contains(refused("auroc", values), "what fits is mse, mae, r2");
  for (const char* metric : {"r2", "mse", "perplexity"}) {
    expect_contains(refused(metric, classes), "does not fit this task");
  }
  expect_contains(refused("top6", classes), "needs 6 classes, the model has 5");
  expect_contains(refused("f1_binary", classes), "needs two classes");
  EXPECT_EQ(refused("f1_macro", classes), "accepted");
  EXPECT_EQ(refused("top5", classes), "accepted");
  EXPECT_EQ(refused("mae", values), "accepted");
  expect_contains(refused("mae", {}), "names no metrics");
}

TEST(EvaluationPass, drops_the_default_where_it_does_not_fit_and_says_so) {
  Given given;
  given.profile.metrics = value_metrics();
  EXPECT_TRUE(given.plan().evaluate.metrics.empty());
  expect_contains(given.line("evaluate.metrics"), "[]|planned|accuracy, the default, does not fit");
  given.profile.metrics = class_metrics();
  EXPECT_EQ(given.plan().evaluate.metrics, std::vector<std::string>{"accuracy"});
  expect_contains(given.line("evaluate.metrics"), "no line");
}

TEST(BatchPass, prints_the_arithmetic) {
  Given given;
  given.config.batch.global_batch = "30";
  expect_contains(given.line("global_batch"), "30 = 1 rank × 30; 30 = 1 microstep × 30");
  given.config.batch.microbatch = 5;
  expect_contains(given.line("global_batch"), "30 = 6 microsteps × 5");
  given.config.batch.microbatch = 7;
  expect_contains(given.line("global_batch"), "30 = 4 microsteps × 7 + 1 × 2");
  EXPECT_EQ(given.plan().batch.last_microbatch, 2);
  EXPECT_EQ(given.plan().batch.accumulation_steps, 5);
  EXPECT_EQ(given.plan().batch.steps_per_epoch, 4);
  given.config.data.last = "drop";
  EXPECT_EQ(given.plan().batch.steps_per_epoch, 3);
}

TEST(BatchPass, accumulates_an_epoch_and_never_asks_for_more_than_there_is) {
  Given given;
  given.config.batch.global_batch = "epoch";
  EXPECT_EQ(given.plan().batch.global_batch, 100);
  given.config.batch.global_batch = "1000";
  EXPECT_EQ(given.plan().batch.global_batch, 100);
  expect_contains(given.line("global_batch"), "planned");
  given.config.data.last = "drop";
  EXPECT_THROW(given.plan(), ConfigError);
}

TEST(BatchPass, says_where_batch_norm_breaks_equality) {
  Given given;
  given.config.batch.microbatch = 5;
  expect_contains(given.line("microbatch"), "equals the whole batch's");
  given.profile.couples_samples = true;
  expect_contains(given.line("microbatch"), "batch norm couples");
  given.profile.couples_samples = false;
  given.profile.torch_dropout = "blocks.0.drop";
  expect_contains(given.line("microbatch"), "but blocks.0.drop is torch's dropout");
}

TEST(LengthPass, counts_steps_by_epochs_or_as_asked) {
  Given given;
  given.config.batch.global_batch = "30";
  EXPECT_EQ(given.plan().length.total_steps, 8);
  given.config.run.epochs.reset();
  given.config.run.steps = 5;
  EXPECT_EQ(given.plan().length.total_steps, 5);
  given.config.schedule.warmup_steps = 9;
  expect_contains(given.line("warmup_steps"), "ends before its warm-up");
  EXPECT_EQ(given.plan().length.max_seconds, 0);
  given.config.run.max_time = "1h30m";
  EXPECT_EQ(given.plan().length.max_seconds, 5400);
  expect_contains(given.line("max_time"), "the same command resumes");
}

TEST(PrecisionPass, picks_by_hardware_and_says_why) {
  Given given;
  EXPECT_EQ(given.plan().precision.mode, Mode::fp32);
  given.machine.cpu_bf16 = true;
  EXPECT_EQ(given.plan().precision.mode, Mode::bf16);
  given.machine.accelerators.bytes = {0};
  given.machine.accelerators.bf16 = false;
  EXPECT_EQ(given.plan().precision.mode, Mode::fp16);
  EXPECT_EQ(given.plan().precision.scaling, Scaling::dynamic);
  given.machine.accelerators.bf16 = true;
  EXPECT_EQ(given.plan().precision.mode, Mode::bf16);
  expect_contains(given.line("precision"), "bf16|planned|");
}

TEST(PrecisionPass, says_what_a_level_comes_to) {
  Given given;
  given.config.precision.level = "O2";
  const PrecisionPlan precision = given.plan().precision;
  EXPECT_EQ(precision.mode, Mode::fp16);
  EXPECT_EQ(precision.cast_model_type, Mode::fp16);
  EXPECT_FALSE(precision.patch_torch_functions);
  EXPECT_TRUE(precision.keep_batchnorm_fp32 && precision.master_weights);
  EXPECT_EQ(precision.scaling, Scaling::dynamic);
  EXPECT_EQ(precision.cast_model_outputs, Mode::fp32);
  expect_contains(
      given.line("precision"),
      "O2, fp16|asked|weights, buffers and batches in fp16, batch norms with weights in "
      "fp32; gradients, optimizer and copies of the weights in fp32");
  expect_contains(given.line("loss_scale"), "ceiling 16777216");
  given.config.precision.level = "O3";
  given.config.precision.loss_scale = "128";
  EXPECT_EQ(given.plan().precision.scaling, Scaling::fixed);
  EXPECT_EQ(given.plan().precision.initial_scale, 128);
  given.config.precision.level = "O0";
  expect_contains(given.line("precision"), "O0, fp32|asked|all in fp32");
  given.machine.cpu_bf16 = true;  // which mode "auto" would take
  given.config.precision.level = "O1";
  EXPECT_EQ(given.plan().precision.mode, Mode::fp16);
  EXPECT_EQ(given.plan().precision.cast_model_type, Mode::fp32);
}

TEST(PrecisionPass, keeps_a_level_or_refuses_it_where_the_cpu_has_no_lstm_for_it) {
  Given given;
  given.config.model.kind = "lstm";
  given.config.precision.level = "O1";
  try {
    given.plan();
    FAIL() << "an LSTM in fp16 was planned";
  } catch (const ConfigError& error) {
    expect_contains(error.what(),
                    "there is no LSTM for it on the CPU; take precision.level = \"O0\"");
  }
  given.config.precision.level = "O0";
  EXPECT_EQ(given.plan().precision.mode, Mode::fp32);
}

TEST(PrecisionPass, computes_an_lstm_in_fp32_where_the_cpu_is_asked_for_fp16) {
  Given given;
  given.config.model.kind = "lstm";
  given.config.precision.mode = "fp16";
  EXPECT_EQ(given.plan().precision.mode, Mode::fp32);
  EXPECT_EQ(given.plan().precision.scaling, Scaling::none);
  expect_contains(given.line("precision"), "fp32|asked|fp16 as asked has no LSTM on the CPU");
  given.config.precision.mode = "bf16";
  EXPECT_EQ(given.plan().precision.mode, Mode::fp32);
  expect_contains(given.line("precision"), "fp32|asked|bf16 as asked has no LSTM on a CPU without");
  given.machine.cpu_bf16 = true;
  EXPECT_EQ(given.plan().precision.mode, Mode::bf16);
  given.config.precision.mode = "fp16";
  given.machine.accelerators.bytes = {0};
  given.machine.accelerators.bf16 = true;
  EXPECT_EQ(given.plan().precision.mode, Mode::fp16);
}

TEST(PrecisionPass, plans_the_loss_scale) {
  Given given;
  given.config.precision.mode = "fp16";
  EXPECT_EQ(given.plan().precision.initial_scale, 65536);
  given.config.precision.initial_scale = "auto";
  EXPECT_TRUE(given.plan().precision.find_initial_scale);
  given.config.precision.initial_scale = "128";
  given.config.precision.loss_scale = "static";
  EXPECT_EQ(given.plan().precision.scaling, Scaling::fixed);
  EXPECT_EQ(given.plan().precision.initial_scale, 128);
  given.config.precision.loss_scale = "none";
  EXPECT_EQ(given.plan().precision.initial_scale, 1);
  given.config.precision.mode = "bf16";
  given.config.precision.loss_scale = "dynamic";
  EXPECT_EQ(given.plan().precision.scaling, Scaling::dynamic);
  expect_contains(given.line("loss_scale"), "changes nothing outside fp16");
}

TEST(DeterminismPass, resolves_benchmark_against_deterministic_and_explains_it) {
  Given given;
  given.machine.accelerators.bytes = {0};
  given.config.precision.cudnn_benchmark = true;
  EXPECT_TRUE(given.plan().precision.cudnn_benchmark);
  expect_contains(given.line("cudnn_benchmark"), "may differ");
  given.config.run.deterministic = true;
  EXPECT_FALSE(given.plan().precision.cudnn_benchmark);
  expect_contains(given.line("cudnn_benchmark"),
                  "false|planned|asked for, but run.deterministic wins");
}

TEST(Print, aligns_columns_by_what_is_shown_and_not_by_bytes) {
  Plan plan;
  plan.lines = {{"é×", "≥ 1", Source::asked, "first"}, {"plain", "a", Source::planned, "second"}};
  const auto text = plan_text(plan);
  const auto feed = text.find('\n');
  const auto column = [](const std::string& line, const char* word) {
    return display_width(line.substr(0, line.find(word)));
  };
  const std::string first = text.substr(0, feed), second = text.substr(feed + 1);
  EXPECT_EQ(column(first, "asked"), column(second, "planned")) << text;
  EXPECT_EQ(column(first, "first"), column(second, "second")) << text;
}

TEST(Print, text_has_a_line_a_decision_and_json_parses) {
  const Given given;
  const auto plan = given.plan();
  const auto text = plan_text(plan);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), plan.lines.size());
  const auto json = nlohmann::json::parse(plan_json(plan));
  EXPECT_EQ(json["global_batch"]["value"], "32");
  EXPECT_EQ(json["precision"]["source"], "planned");
}

TEST(BatchPass, refuses_no_samples_and_lengths_that_are_no_number) {
  Given given;
  given.config.run.epochs = int64_t{1} << 62;
  EXPECT_THROW(given.plan(), ConfigError);
  given.config.run.epochs = 1;
  given.profile.train_samples = 0;
  EXPECT_THROW(given.plan(), ConfigError);
}

TEST(BatchPass, takes_no_larger_microbatch_than_there_are_samples_and_says_so) {
  Given given;
  given.config.batch.global_batch = "1000";
  given.config.batch.microbatch = 500;
  given.config.asked = {"batch.microbatch"};
  expect_contains(given.line("microbatch"), "100|planned|");
  expect_contains(given.line("microbatch"), "500 is more than there is");
}

TEST(BatchPass, gives_a_rank_the_largest_share) {
  Given given;
  given.profile.train_samples = 10000;
  given.config.batch.global_batch = "512";
  Plan plan;
  plan.batch.world_size = 4;
  plan_batch({given.config, given.machine, given.profile}, plan);
  EXPECT_EQ(plan.lines.at(0).reason, "512 = 4 ranks × 128; 128 = 1 microstep × 128");
  given.config.batch.global_batch = "30";
  plan_batch({given.config, given.machine, given.profile}, plan);
  EXPECT_EQ(plan.batch.per_rank, 8);
  EXPECT_EQ(plan.lines.at(3).reason, "30 over 4 ranks, 7 or 8 each; 8 = 1 microstep × 8");
  given.config.batch.global_batch = "3";
  plan_batch({given.config, given.machine, given.profile}, plan);
  EXPECT_EQ(plan.batch.per_rank, 1);
  EXPECT_EQ(plan.lines.at(6).reason,
            "3 over 4 ranks: 1 of them get no sample of it; 1 = 1 microstep × 1");
}

TEST(ProbeMachine, obeys_its_own_cgroup_and_those_above) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("probe-" + std::to_string(::getpid()));
  const auto file = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  file("proc/cpuinfo", "model name\t: Some CPU\nflags\t\t: fpu amx_bf16 avx512_vnni sse\n\n");
  file("proc/self/cgroup", "4:memory:/a\n0::/jobs/one\n");
  file("sys/fs/cgroup/jobs/cpu.max", "100000 100000\n");
  file("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  file("sys/fs/cgroup/jobs/one/memory.max", "5000\n");
  file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
  auto machine = probe_machine(root);
  EXPECT_EQ(machine.cores, 1);
  EXPECT_EQ(machine.memory_bytes, 5000);
  EXPECT_EQ(machine.cpu, "Some CPU");
  EXPECT_TRUE(machine.cpu_bf16 && !machine.cpu_fp16);
  EXPECT_TRUE(machine.cpu_vnni && !machine.cpu_amx_int8);
  file("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  EXPECT_EQ(probe_machine(root).memory_bytes, 7000);
  fs::remove_all(root);
}

TEST(ProbeMachine, finds_at_least_a_core_and_some_memory) {
  const auto machine = probe_machine();
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_bytes, int64_t{1} << 28);
}

TEST(PlanData, loader_threads_are_shared_by_the_ranks_of_a_machine) {
  Given given;
  given.config.data.workers = 6;
  EXPECT_EQ(given.plan().data.workers, 6);
  given.machine.local_ranks = 4;
  EXPECT_EQ(given.plan().data.workers, 2);
  EXPECT_EQ(given.line("loader_threads"),
            "2|planned|of each rank: data.workers = 6 over the 4 ranks of this machine");
  given.config.data.workers = 1;
  EXPECT_EQ(given.line("loader_threads"),
            "1|planned|of each rank: data.workers = 1 over the 4 ranks of this machine, at least "
            "one each");
  given.config.data.workers = 0;
  EXPECT_EQ(given.plan().data.workers, 0);
}

}  // namespace
}  // namespace tanren
