// The memory of each stage: a dry run predicts what the rank then holds, and a plan in stages fits
// memory.limit or is refused.
#include "tests/stages/metered_stages.h"
#include "tests/stages/staged_models.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/forecast/fit_memory.h"
#include "tanren/forecast/predict_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

using ::testing::HasSubstr;

TEST(StageMemory, is_predicted_and_1f1b_holds_half_of_gpipes_activations) {
  for (const std::string mode : {"fp32", "bf16"}) {
    const RunConfig config = gpt_config(mode, /*microbatches=*/8);
    const auto data = open_dataset(config.data.train, "data.train");
    StagedRun run{.config = config, .data = *data, .stages = 4};
    std::map<PipelineSchedule, int64_t> activations;  // of the first stage
    for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
      run.schedule = schedule;
      const bool is_gpipe = schedule == PipelineSchedule::gpipe;
      const auto stages = expect_predicted(run, mode == "fp32" ? 0.03 : 0.04,
                                           mode + (is_gpipe ? " gpipe" : " 1f1b"));
      activations[schedule] = kind_bytes(stages.at(0).step, MemoryKind::activations);
    }
    EXPECT_GT(activations[PipelineSchedule::one_f_one_b], 0) << mode;
    EXPECT_LE(static_cast<double>(activations[PipelineSchedule::one_f_one_b]),
              0.55 * static_cast<double>(activations[PipelineSchedule::gpipe]))
        << mode;
  }
}

// The scaler, and the shares of gradients and optimizer state.
TEST(StageMemory, is_predicted_where_replicas_share_the_state_in_fp16) {
  RunConfig config = gpt_config("fp16", /*microbatches=*/8);
  config.batch.global_batch = "32";
  config.parallel.zero = 2;
  const auto data = open_dataset(config.data.train, "data.train");
  const StagedRun run{.config = config, .data = *data, .stages = 2, .replicas = 2};
  expect_predicted(run, 0.04, "fp16 zero 2");
}

// Covers what an update leaves to the next. Uses fp32 and no shards: the meter counts one thread,
// and another rank's may free casts, which libtorch caches for the process, or gathered weights.
TEST(StageMemory, is_predicted_of_the_second_update) {
  RunConfig config = gpt_config("fp32", /*microbatches=*/8);
  config.batch.global_batch = "32";
  const auto data = open_dataset(config.data.train, "data.train");
  const StagedRun run{.config = config, .data = *data, .stages = 2, .replicas = 2};
  expect_predicted(run, 0.03, "second update", /*update=*/2);
}

TEST(StageMemory, is_predicted_with_recomputed_blocks_averages_and_a_short_microbatch) {
  RunConfig config = gpt_config("fp32", /*microbatches=*/21);
  config.data.train.samples = 192;
  config.batch.microbatch = 8;
  config.batch.global_batch = "161";
  config.memory.recompute = {"transformer.h.*"};
  config.average.kind = "ema";
  config.clip.norm = 1;
  const auto data = open_dataset(config.data.train, "data.train");
  StagedRun run{.config = config, .data = *data, .stages = 3};
  for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
    run.schedule = schedule;
    expect_predicted(run, 0.03, "recomputed");
  }
}

TEST(StageMemory, is_predicted_of_layers_with_statistics_where_nothing_is_trained_below) {
  RunConfig config = block_config("convnet", "fp32");
  config.run.device = "cpu";
  config.model.channels = {16, 32};
  config.model.freeze = {"stem.*"};
  config.data.train.fields[0] = "inputs: float[3,32,32] in [-1, 1]";
  config.batch.global_batch = "12";
  const auto data = open_dataset(config.data.train, "data.train");
  expect_predicted({.config = config, .data = *data, .stages = 3}, 0.03, "convnet");
}

// What goes between its stages is bf16.
TEST(StageMemory, is_predicted_of_outputs_in_16_bits) {
  RunConfig config = block_config("mlp", "bf16");
  config.run.device = "cpu";
  config.model.hidden = {96, 96, 96};
  config.data.train.fields[0] = "inputs: float[96] in [-1, 1]";
  config.batch.global_batch = "48";
  config.batch.microbatch = 12;
  const auto data = open_dataset(config.data.train, "data.train");
  expect_predicted({.config = config, .data = *data, .stages = 3}, 0.04, "mlp bf16");
}

TEST(StageMemory, of_a_long_window_is_that_of_a_short_one_and_its_batch) {
  const RunConfig shorter = gpt_config("fp32", 6), longer = gpt_config("fp32", 20);
  const auto data = open_dataset(shorter.data.train, "data.train");
  const auto peak_of = [&](const RunConfig& config) {
    return predicted({.config = config, .data = *data, .stages = 2})[0].step.peak_bytes;
  };
  constexpr int64_t kSample = 2 * 64 * 8;  // two fields of 64 tokens
  EXPECT_EQ(peak_of(longer) - peak_of(shorter), (20 - 6) * 2 * kSample);
}

// Sample 0 is half as long as the others.
class ShortFirst : public Dataset {
 public:
  explicit ShortFirst(const Dataset& whole) : whole_(whole) {}
  int64_t size() const override { return whole_.size(); }
  DataInfo info() const override { return whole_.info(); }
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated collated = whole_.collate(indices);
    if (indices != std::vector<int64_t>{0}) return collated;
    for (const char* field : {"inputs", "labels"}) {
      collated.batch.fields.set(field, collated.batch[field].narrow(1, 0, 32).contiguous());
    }
    return collated;
  }

 private:
  const Dataset& whole_;
};

TEST(StageMemory, is_that_of_the_longest_of_the_first_samples) {
  const RunConfig config = gpt_config("fp32", 4);
  const auto data = open_dataset(config.data.train, "data.train");
  const ShortFirst other(*data);
  const auto whole = predicted({.config = config, .data = *data, .stages = 2});
  const auto found = predicted({.config = config, .data = other, .stages = 2});
  for (size_t stage : {0u, 1u}) {
    EXPECT_EQ(found[stage].step.peak_bytes, whole[stage].step.peak_bytes);
    EXPECT_THAT(found[stage].step.how, HasSubstr("with samples of length 64"));
  }
}

// Plans in stages, on a machine with enough memory for any limit.
class StageFit : public ::testing::Test {
 protected:
  StageFit() : config_(gpt_config("fp32", 4)) {
    config_.batch.microbatch = 8;
    config_.batch.global_batch = "32";
    config_.memory.allocator = "cached";
    config_.parallel.pipeline = 2;
    config_.asked = {"batch.microbatch", "memory.recompute"};
    data_ = open_dataset(config_.data.train, "data.train");
    machine_.memory_bytes = kMachineBytes;
  }
  void on_devices(size_t count, int64_t bytes) {
    config_.run.device = "xpu";  // whose libraries keep nothing beside these small models
    machine_.accelerators.kind = "xpu";
    machine_.accelerators.bytes.assign(count, bytes);
  }
  FitInput input(const RunConfig& config) const {
    const auto make_task = [this](const RunConfig& other) {
      return own_task_ ? own_task_() : build_task(other, ModelRegistry(), *data_);
    };
    const Task task = make_task(config);
    ModelProfile facts;
    profile_parameters(*task.module, facts);
    profile_objectives(task, facts);
    facts.train_samples = data_->size();
    facts.metrics = task.metrics;
    RunConfig alone = config;
    alone.parallel = ParallelOptions();
    if (config.parallel.pipeline > 1) {
      facts.blocks = block_profile(
          make_plan(alone, machine_, facts), [&] { return make_task(config); },
          collated(*data_, {0, 1}).batch);
    }
    return {.config = config,
            .plan = [machine = machine_,
                     facts](const RunConfig& other) { return make_plan(other, machine, facts); },
            .make_task = make_task,
            .dataset = data_.get(),
            .blocks = facts.blocks};
  }
  Fitted fit_in(int64_t limit, RunConfig config) const {
    if (limit > 0) config.memory.limit = std::to_string(limit);
    if (limit > 0) config.asked.insert("memory.limit");
    const FitInput given = input(config);
    return fit_memory(given);
  }
  std::string refusal(int64_t limit, const RunConfig& config) const {
    try {
      fit_in(limit, config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  static std::string line(const Plan& plan, const std::string& key) {
    for (const PlanLine& line : plan.lines) {
      if (line.key == key) return line.value + "|" + line.reason;
    }
    return "no line";
  }
  static int64_t largest(const Fitted& fitted) {
    int64_t most = 0;
    for (const auto& stage : fitted.stages) most = std::max(most, stage.step.peak_bytes);
    return most;
  }
  // Returns how many stages an error advises, 0 if none. Expects as many ranks in the advice.
  static int64_t advised_stages(const std::string& error) {
    const std::string clause = "; parallel.pipeline = ";
    const size_t found = error.find(clause);
    if (found == std::string::npos) return 0;
    const int64_t stages = std::stoll(error.substr(found + clause.size()));
    EXPECT_THAT(error, HasSubstr(fmt::format("{}{} on {} ranks", clause, stages, stages)));
    return stages;
  }
  // A limit that is just too small for a peak.
  static int64_t just_below(int64_t peak) { return (taken(peak) - 1) / 15 * 16; }

  static constexpr int64_t kMachineBytes = int64_t{16} << 30;

  RunConfig config_;
  Machine machine_;
  std::unique_ptr<Dataset> data_;
  std::function<Task()> own_task_;  // empty: the config's model
};

TEST_F(StageFit, tells_the_peak_of_each_stage) {
  const Fitted fitted = fit_in(0, config_);
  ASSERT_EQ(fitted.stages.size(), 2u);
  EXPECT_FALSE(fitted.prediction);
  EXPECT_THAT(line(fitted.plan, "stage_1"), HasSubstr("; its peak: "));
  EXPECT_THAT(line(fitted.plan, "stage_2"), HasSubstr("; its peak: "));
  EXPECT_THAT(line(fitted.plan, "predicted_peak"), HasSubstr("by a dry run of each stage"));
  EXPECT_EQ(predicted_peak(fitted), fitted.stages[0].step.peak_bytes);
  RunConfig threads = config_;
  threads.parallel.ranks = "threads";
  EXPECT_EQ(predicted_peak(fit_in(0, threads)),
            fitted.stages[0].step.peak_bytes + fitted.stages[1].step.peak_bytes);
}

TEST_F(StageFit, cuts_elsewhere_where_the_fastest_cut_does_not_fit) {
  const Fitted free = fit_in(0, config_);
  const int64_t limit = just_below(largest(free));
  const Fitted fitted = fit_in(limit, config_);
  EXPECT_NE(fitted.plan.parallel.cut_at, free.plan.parallel.cut_at);
  EXPECT_LT(largest(fitted), largest(free));
  EXPECT_THAT(line(fitted.plan, "cut_at"),
              HasSubstr("of the cuts that were tried and fit memory_limit"));
  const int64_t room = room_for_step(fitted.plan, 0);
  for (const StagePrediction& stage : fitted.stages) {
    EXPECT_LE(taken(stage.step.peak_bytes), room);
    EXPECT_LE(taken(stage.start_bytes), room);
  }
  RunConfig asked = config_;
  asked.parallel.cut_at = free.plan.parallel.cut_at;
  asked.asked.insert("parallel.cut_at");
  const std::string error = refusal(limit, asked);
  EXPECT_THAT(error, HasSubstr("leaves a stage "));
  EXPECT_THAT(error, HasSubstr(", and stage 1 of 2 ("));
  EXPECT_THAT(error, HasSubstr(" more; a limit for this cut: memory.limit = \""));
  EXPECT_THAT(error, HasSubstr("; parallel.cut_at = [] needs at most "));
}

// Blocks of equal work, each of which keeps eight tensors of its weight's size, for any number of
// samples. The profile of two samples counts them as bytes of the samples. No later stage can begin
// at block `refused`.
struct WeightKeeper : torch::nn::Module {
  static constexpr int64_t kWidth = 256;

  explicit WeightKeeper(size_t blocks, size_t no_begin) : refused(no_begin) {
    for (size_t i = 0; i < blocks; ++i) {
      weights.push_back(register_parameter(name_of(i), at::full({kWidth, kWidth}, 0.01)));
    }
  }
  static std::string name_of(size_t i) { return std::string(1, static_cast<char>('a' + i)); }
  at::Tensor forward(at::Tensor x) const {
    bool was_elsewhere = false;
    for (size_t i = 0; i < weights.size(); ++i) {
      bool is_elsewhere = true;
      x = run_block(name_of(i), [&] {
        is_elsewhere = false;
        if (was_elsewhere && i == refused) throw std::runtime_error("not here");
        at::Tensor weight = weights[i];
        for (int times = 0; times < 8; ++times) weight = weight.tanh();
        return at::linear(x, weight);
      });
      was_elsewhere = is_elsewhere;
    }
    return x;
  }

  size_t refused;
  std::vector<at::Tensor> weights;
};

Task keeper_task(size_t blocks, size_t refused) {
  return supervised(std::make_shared<WeightKeeper>(blocks, refused), {},
                    {.outputs = WeightKeeper::kWidth});
}

RunConfig keeper_config(const RunConfig& like) {
  RunConfig config = block_config("mlp", "fp32");
  config.run.device = "cpu";
  config.data.train.fields[0] = "inputs: float[256] in [-1, 1]";
  config.optimizer.kind = "sgd";
  config.optimizer.momentum = 0;
  config.batch = like.batch;
  config.memory = like.memory;
  config.parallel = like.parallel;
  config.asked = like.asked;
  return config;
}

TEST_F(StageFit, passes_over_cuts_whose_dry_run_ends_in_an_error) {
  const RunConfig config = keeper_config(config_);
  data_ = open_dataset(config.data.train, "data.train");
  own_task_ = [] { return keeper_task(8, 3); };  // refuses "d", the choice after "e"
  const Fitted free = fit_in(0, config);
  EXPECT_EQ(free.plan.parallel.cut_at, std::vector<std::string>{"e"});
  EXPECT_EQ(fit_in(just_below(largest(free)), config).plan.parallel.cut_at,
            std::vector<std::string>{"c"});
  // Refuses "e". At "f" the slower stage has less work than at "d": the input of "a" has no
  // gradient.
  own_task_ = [] { return keeper_task(8, 4); };
  EXPECT_EQ(fit_in(0, config).plan.parallel.cut_at, std::vector<std::string>{"f"});
}

TEST_F(StageFit, finds_a_cut_that_needs_less_than_the_estimate_of_its_blocks) {
  const RunConfig config = keeper_config(config_);
  data_ = open_dataset(config.data.train, "data.train");
  own_task_ = [] { return keeper_task(4, 0); };
  const Fitted free = fit_in(0, config);
  EXPECT_EQ(free.plan.parallel.cut_at, std::vector<std::string>{"c"});
  const Fitted fitted = fit_in(just_below(largest(free)), config);
  EXPECT_EQ(fitted.plan.parallel.cut_at, std::vector<std::string>{"b"});
  EXPECT_THAT(line(fitted.plan, "cut_at"),
              HasSubstr("of the cuts that were tried and fit memory_limit"));
}

TEST_F(StageFit, refuses_what_no_cut_fits_with_changes_that_do) {
  const int64_t limit = just_below(largest(fit_in(0, config_)) * 2 / 3);
  const std::string error = refusal(limit, config_);
  EXPECT_THAT(error, HasSubstr("of 2 (transformer."));
  EXPECT_THAT(error, HasSubstr("more, and no other cut that was tried fits; a limit for this cut"));
  EXPECT_THAT(error, HasSubstr("; memory.recompute = [\"*\"] needs at most "));
  const size_t smaller = error.find("; batch.microbatch = ");
  ASSERT_NE(smaller, std::string::npos) << error;
  RunConfig changed = config_;
  changed.batch.microbatch = std::stoll(error.substr(smaller + 21));
  EXPECT_EQ(refusal(limit, changed), "accepted");
  changed = config_;
  changed.memory.recompute = {"*"};
  EXPECT_EQ(refusal(limit, changed), "accepted");
  EXPECT_EQ(advised_stages(error), 8);
  changed = config_;
  changed.parallel.pipeline = 8;
  EXPECT_EQ(refusal(limit, changed), "accepted");
  // The same limit as a share of the machine's memory: eight processes have a quarter of it each.
  changed = config_;
  changed.memory.limit = to_text(2.0 * static_cast<double>(limit) / kMachineBytes);
  const std::string shared = refusal(0, changed);
  EXPECT_THAT(shared, HasSubstr(" leaves a stage "));
  EXPECT_EQ(advised_stages(shared), 0) << shared;
  changed = config_;
  const size_t mebibytes = error.find("memory.limit = \"") + 16;
  changed.memory.limit = error.substr(mebibytes, error.find('"', mebibytes) - mebibytes);
  EXPECT_EQ(refusal(0, changed), "accepted") << changed.memory.limit;
}

// What a device's own operators take may be less than the prediction, which is of the CPU's.
TEST_F(StageFit, refuses_what_a_device_does_not_have_only_by_a_limit_that_was_asked_for) {
  on_devices(2, kMachineBytes);
  const int64_t small = largest(fit_in(0, config_)) / 2;
  on_devices(2, small);
  const Fitted fitted = fit_in(0, config_);
  EXPECT_EQ(fitted.stages.size(), 2u);
  ASSERT_EQ(fitted.remarks.size(), 1u);
  EXPECT_THAT(fitted.remarks[0], HasSubstr("of 2 (transformer."));
  EXPECT_THAT(fitted.remarks[0], HasSubstr(" may not fit the device: "));
  const std::string error = refusal(small, config_);
  EXPECT_THAT(error, HasSubstr("[plan] memory.limit " + size_text(small) + " leaves a stage "));
  EXPECT_THAT(error, HasSubstr("; the device has less; memory.limit = \"none\" tries it"));
}

// Eight stages take eight of the devices, two only two.
TEST_F(StageFit, in_threads_on_devices_is_told_the_stages_that_fit_them) {
  on_devices(8, kMachineBytes);
  config_.parallel.ranks = "threads";
  config_.parallel.replicas = 1;
  const int64_t limit = just_below(largest(fit_in(0, config_)) * 2 / 3);
  const std::string error = refusal(limit, config_);
  const int64_t stages = advised_stages(error);
  ASSERT_GT(stages, 2) << error;
  config_.parallel.pipeline = stages;
  EXPECT_EQ(refusal(limit, config_), "accepted");
}

// Processes with different limits: all of them fit to the smallest.
TEST_F(StageFit, cuts_alike_on_ranks_with_another_limit) {
  const Fitted free = fit_in(0, config_);
  RunConfig small = config_;
  small.memory.limit = std::to_string(just_below(largest(free)));
  const FitInput one = input(config_);
  FitInput other = input(small);
  const Fitted alone = fit_memory(other);
  EXPECT_NE(alone.plan.parallel.cut_at, free.plan.parallel.cut_at);
  FitInput told = one;
  told.least_room_bytes = other.least_room_bytes = room_for_step(alone.plan, 0);
  const Fitted fitted = fit_memory(told);
  EXPECT_EQ(fitted.plan.parallel.cut_at, alone.plan.parallel.cut_at);
  EXPECT_EQ(fit_memory(other).plan.parallel.cut_at, alone.plan.parallel.cut_at);
  EXPECT_EQ(fitted.plan.memory.limit_bytes, free.plan.memory.limit_bytes) << "it keeps its own";
  EXPECT_THAT(line(fitted.plan, "predicted_peak"),
              HasSubstr("; the least memory_limit of all ranks leaves a stage "));
  told.least_room_bytes = 1 << 20;
  EXPECT_THAT([&] { fit_memory(told); },
              ::testing::ThrowsMessage<ConfigError>(
                  HasSubstr("[plan] the least memory.limit of all ranks leaves a stage 1.0 MiB")));
}

TEST_F(StageFit, divides_the_limit_among_stages_in_threads) {
  const int64_t limit = just_below(largest(fit_in(0, config_))) + (1 << 20);
  EXPECT_EQ(refusal(limit, config_), "accepted");
  RunConfig threads = config_;
  threads.parallel.ranks = "threads";
  EXPECT_THAT(refusal(limit, threads), HasSubstr("leaves each stage "));
  EXPECT_EQ(refusal(2 * limit, threads), "accepted");
}

// A stage of one block would do, but the whole model is made first.
TEST_F(StageFit, refuses_a_model_that_its_ranks_cannot_make) {
  config_.model.hidden_size = 256;
  config_.optimizer.kind = "sgd";
  config_.optimizer.momentum = 0;
  config_.parallel.pipeline = 8;
  config_.batch.microbatch = 1;
  config_.batch.global_batch = "1";
  const Fitted fitted = fit_in(0, config_);
  const int64_t whole = fitted.stages[0].whole_bytes;
  EXPECT_GT(whole, largest(fitted));
  EXPECT_GE(predicted_peak(fitted), whole);
  RunConfig threads = config_;
  threads.parallel.ranks = "threads";
  EXPECT_GT(predicted_peak(fit_in(0, threads)), 2 * whole) << "the first rank's and the last's";
  EXPECT_THAT(refusal(just_below(whole), config_),
              HasSubstr("to make the whole model, before it drops what other stages hold"));
}

TEST_F(StageFit, of_a_run_that_one_rank_cannot_hold_is_told_and_holds) {
  RunConfig whole = config_;
  whole.parallel.pipeline = 1;
  whole.batch.microbatch = 0;
  whole.batch.global_batch = "4";
  whole.asked = {};
  // Lowers the limit until one rank does not fit.
  int64_t limit = 32 << 20;
  while (refusal(limit, whole) == "accepted") limit -= limit / 16;
  const std::string error = refusal(limit, whole);
  EXPECT_THAT(error, HasSubstr("; parallel.pipeline = 2"));
  EXPECT_THAT(error, HasSubstr(" on 2 ranks with " + size_text(limit) + " each needs at most "));
  RunConfig staged = whole;
  staged.parallel.pipeline = 2;
  if (error.find("parallel.pipeline = 2 with memory.recompute = [\"*\"]") != std::string::npos) {
    staged.memory.recompute = {"*"};
  }
  EXPECT_EQ(refusal(limit, staged), "accepted");
  // Two and four stages do not divide three ranks.
  machine_.world_size = machine_.local_ranks = 3;
  EXPECT_THAT(refusal(limit, whole), HasSubstr("; parallel.pipeline = 3"));
}

}  // namespace
}  // namespace tanren::testing
