// A plan fits the available memory or is refused before the start, and its predictions hold.
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/forecast/fit_memory.h"
#include "tanren/forecast/memory_forecast.h"
#include "tanren/memory/cpu_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tanren::testing {
namespace {

using ::testing::HasSubstr;

class FitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = tiny_config("gpt2");
    config_.precision.mode = "fp32";
    config_.model.num_layers = 4;
    config_.model.hidden_size = 64;
    config_.model.num_heads = 2;
    config_.model.vocab_size = 500;
    config_.model.context_length = 64;
    config_.model.dropout = 0.1;
    config_.data.train.fields = {"inputs: int[64] in [0, 49]", "labels: int[64] in [0, 49]"};
    config_.batch.global_batch = "16";
    config_.memory.allocator = "cached";
    install_cpu_allocator();
    dataset_ = open_dataset(config_.data.train, "data.train");
  }
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }

  FitInput input(const RunConfig& config) const {
    ModelProfile profile;
    profile_parameters(*build_task(config, ModelRegistry(), *dataset_).module, profile);
    profile.train_samples = dataset_->size();
    profile.metrics = {"*"};
    Machine machine;
    machine.cores = cores_;
    machine.memory_bytes = int64_t{16} << 30;
    return {
        .config = config,
        .plan = [machine, profile](const RunConfig& c) { return make_plan(c, machine, profile); },
        .make_task = [this](const RunConfig& c) { return make(c); },
        .dataset = dataset_.get()};
  }
  virtual Task make(const RunConfig& config) const {
    return build_task(config, ModelRegistry(), *dataset_);
  }
  Fitted fit(const RunConfig& config) const {
    const FitInput given = input(config);
    return fit_memory(given);
  }
  Fitted fit_in(int64_t bytes, RunConfig config) const {
    config.memory.limit = std::to_string(bytes);
    config.asked.insert("memory.limit");
    return fit(config);
  }
  // The number of allocation failures that 3 steps of the fitted plan recover from, under its
  // limit.
  int64_t recoveries(const Fitted& fitted) const {
    TinyRun run(fitted.config, dataset_.get(), std::nullopt);
    set_cpu_memory_limit(fitted.plan.memory.limit_bytes + standing_,
                         fitted.plan.memory.reserve_bytes);
    run.steps(3);
    return run.parts.recovery->num_failures();
  }
  static std::string line(const Plan& plan, const std::string& key) {
    for (const auto& line : plan.lines) {
      if (line.key == key) return line.value + "|" + line.reason;
    }
    return "";
  }

  RunConfig config_;
  int64_t cores_ = 1;
  std::unique_ptr<Dataset> dataset_;
  int64_t standing_ = 1 << 20;  // for the test program's other tensors
};

TEST_F(FitTest, with_room_enough_the_plan_stays_and_says_its_peak) {
  const Fitted fitted = fit(config_);
  EXPECT_EQ(fitted.plan.batch.microbatch, 16);
  EXPECT_TRUE(fitted.plan.memory.recompute.empty());
  ASSERT_TRUE(fitted.prediction);
  EXPECT_THAT(line(fitted.plan, "predicted_peak"), HasSubstr("activations"));
}

// Issue 21: on a busy machine, every operator must wait until all its threads get a core, idle ones
// too.
TEST_F(FitTest, a_plan_has_no_more_threads_than_its_microbatch_can_use_and_says_why) {
  cores_ = 4;
  config_.run.threads = 0;
  EXPECT_EQ(fit(config_).plan.device.threads, 4) << "1024 tokens at once";
  config_.batch.microbatch = 1;
  const Fitted small = fit(config_);
  EXPECT_EQ(small.plan.device.threads, 1)
      << small.prediction->largest.elements << " " << small.prediction->largest.multiply_adds << " "
      << small.prediction->largest.parameters;
  EXPECT_THAT(line(small.plan, "threads"), HasSubstr("1|the largest operators of a microbatch"));
  EXPECT_GE(small.prediction->largest.elements, 64 * 64);
  EXPECT_GE(small.prediction->largest.multiply_adds, 64 * 64 * 4 * 64);
  config_.run.threads = 3;
  EXPECT_EQ(fit(config_).plan.device.threads, 3) << "as asked";
}

// Rows of several lengths, padded to the longest of a batch.
class Padded : public Dataset {
 public:
  explicit Padded(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}
  int64_t size() const override { return std::ssize(lengths_); }
  DataInfo info() const override {
    DataInfo info;
    info.vocab_size = 500;
    info.input_shape = {64};
    return info;
  }
  Collated collate(const std::vector<int64_t>& indices) const override {
    int64_t longest = 0;
    for (const int64_t i : indices) {
      longest = std::max(longest, lengths_[static_cast<size_t>(i)]);
    }
    Collated all;
    for (const char* name : {"inputs", "labels"}) {
      all.batch.fields.set(name, at::ones({std::ssize(indices), longest}, at::kLong));
    }
    all.batch.ids = ids_of(indices);
    all.counts["samples"] = static_cast<double>(indices.size());
    all.counts["tokens"] = static_cast<double>(all.batch["labels"].numel());
    return all;
  }

 private:
  std::vector<int64_t> lengths_;
};

TEST_F(FitTest, the_order_of_rows_of_several_lengths_changes_no_number_of_threads) {
  cores_ = 4;
  config_.run.threads = 0;
  std::vector<int64_t> lengths(16, 64);
  for (const size_t shortest : {size_t{15}, size_t{0}}) {
    auto rows = lengths;
    rows[shortest] = 4;
    dataset_ = std::make_unique<Padded>(rows);
    EXPECT_EQ(fit(config_).plan.device.threads, 4) << shortest;
  }
}

TEST_F(FitTest, the_largest_microbatch_that_fits_is_planned_and_runs_without_a_failure) {
  const int64_t whole = fit(config_).prediction->peak_bytes;
  const Fitted fitted = fit_in(whole * 2 / 3, config_);
  EXPECT_LT(fitted.plan.batch.microbatch, 16);
  EXPECT_GT(fitted.plan.batch.microbatch, 1);
  EXPECT_TRUE(fitted.plan.memory.recompute.empty());
  EXPECT_THAT(line(fitted.plan, "microbatch"), HasSubstr("the largest that memory_limit allows"));
  EXPECT_EQ(recoveries(fitted), 0);
  EXPECT_GT(fit_in(whole * 5 / 6, config_).plan.batch.microbatch, fitted.plan.batch.microbatch);
}

TEST_F(FitTest, replicas_in_threads_share_the_limit) {
  config_.parallel.ranks = "threads";
  config_.parallel.replicas = 2;
  const Fitted free = fit(config_);
  EXPECT_EQ(free.plan.batch.microbatch, 8);
  const int64_t each = free.prediction->peak_bytes;
  const Fitted tight = fit_in(each * 3 / 2, config_);  // enough for one of them only
  EXPECT_LT(tight.plan.batch.microbatch, 8);
  EXPECT_THAT(line(tight.plan, "predicted_peak"), HasSubstr("leaves each of 2 replicas"));
  EXPECT_EQ(fit_in(each * 4, config_).plan.batch.microbatch, 8);
  config_.memory.limit = "none";
  EXPECT_THAT(line(fit(config_).plan, "predicted_peak"), HasSubstr("; in each of 2 replicas"));
}

TEST_F(FitTest, where_the_microbatch_is_asked_for_as_few_blocks_as_needed_are_recomputed) {
  config_.batch.microbatch = 16;
  config_.asked.insert("batch.microbatch");
  const int64_t whole = fit(config_).prediction->peak_bytes;
  const Fitted some = fit_in(whole * 9 / 10, config_);
  EXPECT_EQ(some.plan.batch.microbatch, 16);
  EXPECT_GE(some.plan.memory.recompute.size(), 1u);
  EXPECT_LT(some.plan.memory.recompute.size(), 5u);
  EXPECT_THAT(line(some.plan, "recompute"), HasSubstr("so that a step fits memory_limit"));
  EXPECT_EQ(recoveries(some), 0);
  const Fitted more = fit_in(whole * 13 / 20, config_);
  EXPECT_GT(more.plan.memory.recompute.size(), some.plan.memory.recompute.size());
  EXPECT_EQ(recoveries(more), 0);
}

TEST_F(FitTest, what_is_asked_for_stays_and_batch_norm_keeps_its_microbatch_as_long_as_it_can) {
  const int64_t whole = fit(config_).prediction->peak_bytes;
  FitInput given = input(config_);
  given.couples_samples = true;
  given.config.memory.limit = std::to_string(whole * 9 / 10);
  const Fitted coupled = fit_memory(given);
  EXPECT_EQ(coupled.plan.batch.microbatch, 16);
  EXPECT_FALSE(coupled.plan.memory.recompute.empty());
}

TEST_F(FitTest, a_limit_below_one_sample_is_refused_with_the_smallest_that_works_and_other_ways) {
  std::string message;
  try {
    fit_in(4 << 20, config_);
  } catch (const ConfigError& error) {
    message = error.what();
  }
  EXPECT_THAT(message,
              HasSubstr("[plan] memory.limit 4.0 MiB is less than a step needs with 1 sample"));
  EXPECT_THAT(message, HasSubstr("weights"));
  EXPECT_THAT(message, HasSubstr("the smallest limit that works: memory.limit = \""));
  const size_t at = message.find("memory.limit = \"") + 16;
  config_.memory.limit = message.substr(at, message.find('"', at) - at);
  config_.asked.insert("memory.limit");
  const Fitted fitted = fit(config_);
  EXPECT_EQ(fitted.plan.batch.microbatch, 1);
  EXPECT_EQ(recoveries(fitted), 0);
}

TEST_F(FitTest, a_microbatch_that_is_asked_for_and_cannot_fit_is_refused_with_one_that_fits) {
  config_.batch.microbatch = 16;
  config_.asked.insert("batch.microbatch");
  try {
    fit_in(14 << 20, config_);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("with 16 samples at once and blocks recomputed"));
    EXPECT_THAT(error.what(), HasSubstr("batch.microbatch = 8 needs"));
    EXPECT_THAT(error.what(), HasSubstr("samples of 32 tokens instead of 64 need"));
  }
}

TEST_F(FitTest, a_model_of_blocks_that_cannot_fit_is_refused_with_the_stages_that_do) {
  config_.model.num_layers = 8;
  config_.batch.microbatch = 16;
  config_.asked = {"batch.microbatch", "memory.recompute"};
  const auto said_in = [&](int64_t limit) {
    try {
      fit_in(limit, config_);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(said_in(5 << 20), ::testing::Not(HasSubstr("parallel.pipeline")));
  // The first limit, from above, that one rank does not have.
  int64_t limit = 256 << 20;
  while (said_in(limit) == "accepted") limit -= limit / 8;
  EXPECT_THAT(said_in(limit), HasSubstr("; parallel.pipeline = 2 on 2 ranks with "));
  config_.parallel.ranks = "threads";  // which share the limit
  EXPECT_THAT(said_in(limit), ::testing::Not(HasSubstr("parallel.pipeline")));
}

TEST_F(FitTest, a_width_that_cannot_fit_is_refused_with_one_that_does) {
  constexpr int64_t kLimit = 7 << 20;
  std::string message;
  try {
    fit_in(kLimit, config_);
  } catch (const ConfigError& error) {
    message = error.what();
  }
  const size_t width = message.find("model.hidden_size = ");
  ASSERT_NE(width, std::string::npos) << message;
  config_.model.hidden_size = std::stoll(message.substr(width + 20));
  EXPECT_NO_THROW(fit_in(kLimit, config_));
}

TEST_F(FitTest, a_preset_that_cannot_fit_is_refused_with_the_largest_that_does) {
  config_ = tiny_config("bert");
  config_.precision.mode = "fp32";
  config_.memory.allocator = "cached";
  config_.model.size = "bert-mini";
  config_.data.train.fields = {"inputs: int[16] in [0, 49]", "labels: int[] in [0, 4]"};
  dataset_ = open_dataset(config_.data.train, "data.train");
  try {
    fit_in(120 << 20, config_);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("; model.size = \"bert-tiny\" needs"));
  }
}

TEST_F(FitTest, where_moments_are_the_most_of_it_8_bit_ones_are_named) {
  config_.model.hidden_size = 256;
  try {
    fit_in(50 << 20, config_);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("optimizer.state = \"8bit\" needs"));
  }
}

// Its forward reads a value of the weights, so that it cannot run dry.
class UntraceableTest : public FitTest {
 protected:
  Task make(const RunConfig& config) const override {
    Task task = FitTest::make(config);
    const at::Tensor weight = task.module->parameters().front();
    task.phases.front().forward = [this, weight,
                                   inner = task.phases.front().forward](const Batch& batch) {
      EXPECT_LT(weight.detach().flatten()[0].item<double>(), 1e9);
      EXPECT_FALSE(is_dry(batch["inputs"])) << "nothing has a value there";
      ++num_forwards_;
      return inner(batch);
    };
    return task;
  }
  // What the same model needs by a dry run, without the value.
  double dry_peak(const Plan& plan) const {
    const StepPredictor predictor([this] { return FitTest::make(config_); }, *dataset_);
    const MemoryPrediction prediction = predictor.step(plan);
    EXPECT_TRUE(prediction.is_dry);
    return static_cast<double>(prediction.peak_bytes);
  }

  mutable int64_t num_forwards_ = 0;
};

// Issue 30. The line is made once: of two steps without accumulation, and of two with it.
TEST_F(UntraceableTest, steps_of_1_and_2_samples_tell_once_the_peak_of_every_microbatch) {
  const FitInput given = input(config_);
  for (const int64_t microbatch : {16, 8, 5, 3, 1}) {
    config_.batch.microbatch = microbatch;
    const Tried tried = try_config(given, config_);
    EXPECT_EQ(tried.prediction.how, "two steps of 1 and 2 samples");
    const double expected = dry_peak(tried.plan);
    // If operators differ between the two steps, the line is through their peaks.
    EXPECT_NEAR(static_cast<double>(tried.prediction.peak_bytes), expected, 0.01 * expected)
        << microbatch;
  }
  EXPECT_EQ(num_forwards_, 2 * 1 + 2 * 2);
}

TEST_F(UntraceableTest, the_plan_fits_the_limit_as_any_models_does_and_the_run_needs_no_recovery) {
  const FitInput given = input(config_);
  at::manual_seed(3);
  const Fitted free = fit_memory(given);
  const at::Tensor drawn = at::rand({4});
  at::manual_seed(3);
  EXPECT_TRUE(at::equal(drawn, at::rand({4}))) << "a run draws as if nothing had been tried";
  EXPECT_THAT(line(free.plan, "predicted_peak"), HasSubstr("by two steps of 1 and 2 samples"));
  const int64_t whole = free.prediction->peak_bytes;
  const Fitted fitted = fit_in(whole * 2 / 3, config_);
  EXPECT_EQ(cpu_memory_limit(), 0) << "the run sets it";
  EXPECT_LT(fitted.plan.batch.microbatch, 16);
  EXPECT_GT(fitted.plan.batch.microbatch, 1);
  EXPECT_THAT(line(fitted.plan, "microbatch"), HasSubstr("the largest that memory_limit allows"));
  EXPECT_EQ(recoveries(fitted), 0);
  config_.batch.microbatch = 16;
  config_.asked.insert("batch.microbatch");
  const Fitted some = fit_in(whole * 4 / 5, config_);
  EXPECT_GE(some.plan.memory.recompute.size(), 1u);
  EXPECT_EQ(recoveries(some), 0);
}

TEST_F(UntraceableTest, steps_that_a_limit_cannot_hold_leave_the_peak_unknown) {
  const Fitted fitted = fit_in(3 << 20, config_);
  EXPECT_FALSE(fitted.prediction);
  EXPECT_THAT(line(fitted.plan, "predicted_peak"), HasSubstr("unknown|"));
  EXPECT_THAT(line(fitted.plan, "predicted_peak"), HasSubstr("no room for a tensor"));
  EXPECT_EQ(cpu_memory_limit(), 0);
}

TEST_F(UntraceableTest, the_forecast_has_a_row_for_each_microbatch_and_tells_what_needs_less) {
  const FitInput given = input(config_);
  const Fitted fitted = fit_memory(given);
  const MemoryForecast forecast = memory_forecast(given, fitted);
  EXPECT_EQ(forecast.planned.how, "two steps of 1 and 2 samples");
  EXPECT_EQ(forecast.lengths, (std::vector<int64_t>{0}));
  ASSERT_EQ(forecast.rows.size(), 5u);  // 1, 2, 4, 8, 16
  for (size_t i = 1; i < forecast.rows.size(); ++i) {
    EXPECT_GE(*forecast.rows[i].peaks[0], *forecast.rows[i - 1].peaks[0]);
  }
  EXPECT_EQ(*forecast.rows.back().peaks[0], fitted.prediction->peak_bytes);
  EXPECT_THAT(to_text(forecast), HasSubstr("the same numbers in more time"));
}

// Its task says that it cannot run dry, and nothing of it is made there.
class UndryTest : public FitTest {
 protected:
  Task make(const RunConfig& config) const override {
    if (is_dry(at::empty({1}))) ++num_made_dry_;
    Task task = FitTest::make(config);
    task.facts.runs_dry = false;
    task.phases.front().forward = [this, inner = task.phases.front().forward](const Batch& batch) {
      if (is_dry(batch["inputs"])) ++num_run_dry_;
      return inner(batch);
    };
    return task;
  }
  mutable int64_t num_made_dry_ = 0, num_run_dry_ = 0;
};

TEST_F(UndryTest, a_task_that_says_so_is_measured_by_real_steps_alone) {
  FitInput given = input(config_);
  given.runs_dry = false;
  const Fitted fitted = fit_memory(given);
  ASSERT_TRUE(fitted.prediction);
  EXPECT_FALSE(fitted.prediction->is_dry);
  EXPECT_EQ(num_made_dry_, 0);
  given.may_probe = false;
  EXPECT_THROW(try_config(given, config_), NeedsValues);
  // A predictor that was not told asks the task.
  const StepPredictor predictor([this] { return make(config_); }, *dataset_);
  EXPECT_FALSE(predictor.step(fitted.plan).is_dry);
  EXPECT_THROW(predictor.evaluation_peak(fitted.plan, 4), NeedsValues);
  EXPECT_EQ(num_run_dry_, 0);
}

// Its factory gives out the same module again and again.
class KeptTest : public UndryTest {
 protected:
  Task make(const RunConfig& config) const override {
    if (!kept_.module) kept_ = UndryTest::make(config);
    return kept_;
  }
  mutable Task kept_;
};

TEST_F(KeptTest, a_module_that_the_factory_keeps_is_trained_by_no_forecast) {
  const at::Tensor weight = make(config_).module->parameters().front();
  const at::Tensor before = weight.detach().clone();
  FitInput given = input(config_);
  given.runs_dry = false;
  const Fitted fitted = fit_memory(given);
  EXPECT_FALSE(fitted.prediction);
  EXPECT_THAT(line(fitted.plan, "predicted_peak"), HasSubstr("the factory keeps the module"));
  EXPECT_TRUE(at::equal(weight, before));
}

// Its factory makes a module each time, and the first weight of all is one that it has read once.
class SharedTest : public UndryTest {
 protected:
  Task make(const RunConfig& config) const override {
    Task task = UndryTest::make(config);
    at::Tensor own = task.module->parameters().front();
    if (!weight_.defined()) weight_ = own.detach().clone();
    own.set_data(weight_);
    return task;
  }
  mutable at::Tensor weight_;
};

TEST_F(SharedTest, memory_that_tasks_of_a_factory_share_is_trained_by_no_forecast) {
  const at::Tensor weight = make(config_).module->parameters().front();
  const at::Tensor before = weight.detach().clone();
  FitInput given = input(config_);
  given.runs_dry = false;
  const Fitted fitted = fit_memory(given);
  EXPECT_TRUE(at::equal(weight, before));
  EXPECT_FALSE(fitted.prediction);
  EXPECT_THAT(line(fitted.plan, "predicted_peak"), HasSubstr("or a tensor of it"));
}

// Its task takes 3 samples at least.
class LeastTest : public UntraceableTest {
 protected:
  Task make(const RunConfig& config) const override {
    Task task = UntraceableTest::make(config);
    task.facts.least_samples = 3;
    task.phases.front().forward = [inner = task.phases.front().forward](const Batch& batch) {
      EXPECT_GE(batch["inputs"].size(0), 3);
      return inner(batch);
    };
    return task;
  }
  FitInput three(const RunConfig& config) const {
    FitInput given = input(config);
    given.least_samples = 3;
    return given;
  }
};

TEST_F(LeastTest, steps_of_3_and_6_samples_tell_the_peak_of_every_microbatch) {
  const FitInput given = three(config_);
  for (const int64_t microbatch : {16, 8, 5, 3}) {
    config_.batch.microbatch = microbatch;
    const Tried tried = try_config(given, config_);
    EXPECT_EQ(tried.prediction.how, "two steps of 3 and 6 samples");
    const double expected = dry_peak(tried.plan);
    EXPECT_NEAR(static_cast<double>(tried.prediction.peak_bytes), expected, 0.01 * expected)
        << microbatch;
  }
  config_.batch.microbatch = 0;
  const FitInput free = three(config_);
  const MemoryForecast forecast = memory_forecast(free, fit_memory(free));
  ASSERT_EQ(forecast.rows.size(), 4u);  // 3, 4, 8, 16
  EXPECT_EQ(forecast.rows.front().microbatch, 3);
}

// 64 = 9 · 7 + 1, and one sample is too few.
TEST_F(LeastTest, no_microbatch_has_fewer_the_last_one_included) {
  config_.model.hidden_size = 128;
  config_.batch.global_batch = "64";
  RunConfig config = config_;
  config.batch.microbatch = 7;
  const FitInput given = three(config);
  const int64_t needs = taken(try_config(given, config).prediction.peak_bytes);
  config.memory.limit = std::to_string(smallest_limit(needs) << 20);
  config.asked.insert("memory.limit");
  ASSERT_TRUE(try_config(three(config), config).fits);
  config.batch.microbatch = 8;
  ASSERT_FALSE(try_config(three(config), config).fits);
  config.batch.microbatch = 0;
  EXPECT_EQ(fit_memory(three(config)).plan.batch.microbatch, 6);
}

// The same with 71: the epoch's last batch of 7 has no split by 6 or 5 either.
TEST_F(LeastTest, no_microbatch_of_an_epochs_short_last_batch_has_fewer) {
  config_.model.hidden_size = 128;
  config_.data.train.samples = 71;
  dataset_ = open_dataset(config_.data.train, "data.train");
  config_.batch.global_batch = "64";
  RunConfig config = config_;
  config.batch.microbatch = 7;
  const FitInput given = three(config);
  const int64_t needs = taken(try_config(given, config).prediction.peak_bytes);
  config.memory.limit = std::to_string(smallest_limit(needs) << 20);
  config.asked.insert("memory.limit");
  ASSERT_TRUE(try_config(three(config), config).fits);
  config.batch.microbatch = 8;
  ASSERT_FALSE(try_config(three(config), config).fits);
  config.batch.microbatch = 0;
  const Fitted fitted = fit_memory(three(config));
  EXPECT_EQ(fitted.plan.batch.microbatch, 4);
  EXPECT_TRUE(fitted.remarks.empty()) << fitted.remarks.front();
  config.data.last = "drop";
  EXPECT_EQ(fit_memory(three(config)).plan.batch.microbatch, 6);
}

// What is asked for stays, and is refused at the step that it cannot make.
TEST_F(LeastTest, a_microbatch_that_leaves_fewer_to_any_rank_is_told_before_the_run) {
  const auto told = [&](int64_t microbatch, int64_t samples, int64_t ranks) {
    config_.data.train.samples = samples;
    dataset_ = open_dataset(config_.data.train, "data.train");
    config_.batch.microbatch = microbatch;
    config_.parallel = {};
    if (ranks > 1) config_.parallel.ranks = "threads";
    config_.parallel.replicas = ranks;
    const Fitted fitted = fit_memory(three(config_));
    EXPECT_EQ(fitted.plan.batch.microbatch, microbatch);
    EXPECT_LE(fitted.remarks.size(), 1u);
    const std::string remark = fitted.remarks.empty() ? "" : fitted.remarks.front();
    if (!remark.empty()) {
      const std::string text = remark.substr(std::string("[plan] ").size());
      EXPECT_THAT(line(fitted.plan, "microbatch"), HasSubstr(text));
    }
    return remark;
  };
  config_.batch.global_batch = "13";  // 7 and 6 on two ranks
  EXPECT_THAT(told(4, 26, 2), HasSubstr("at least 3 samples at once, and 6 in microbatches of 4"));
  EXPECT_EQ(told(4, 26, 1),
            "[plan] the model takes at least 3 samples at once, and 13 in "
            "microbatches of 4 end with 1, which a step refuses; change "
            "batch.global_batch or batch.microbatch, or leave an epoch's short "
            "last batch out (data.last = \"drop\")");
  EXPECT_EQ(told(5, 26, 1), "") << "5 + 5 + 3";
  EXPECT_EQ(told(7, 26, 2), "");
  EXPECT_THAT(told(7, 28, 1), HasSubstr("and 2 in microbatches of 7 end with 2"));
}

// The real steps may take what the replicas share, and each has half of it.
TEST_F(LeastTest, the_refusal_says_that_the_model_takes_no_fewer) {
  config_.model.hidden_size = 128;
  config_.parallel.ranks = "threads";
  config_.parallel.replicas = 2;
  config_.asked.insert("memory.recompute");
  const auto needed = [&](int64_t microbatch) {
    RunConfig config = config_;
    config.batch.microbatch = microbatch;
    return taken(try_config(three(config), config).prediction.peak_bytes);
  };
  const int64_t limit = (smallest_limit(needed(6)) + 1) << 20;
  ASSERT_LT(limit, 2 * needed(3));
  config_.memory.limit = std::to_string(limit);
  config_.asked.insert("memory.limit");
  const std::string text = error_of<LimitError>([&] { fit_memory(three(config_)); });
  EXPECT_THAT(text, HasSubstr("a step needs with 3 samples at once (the model takes no fewer)"));
}

// Its task does not say that it fails with one sample.
class RowsTest : public UntraceableTest {
 protected:
  Task make(const RunConfig& config) const override {
    Task task = UntraceableTest::make(config);
    task.phases.front().forward = [inner = task.phases.front().forward](const Batch& batch) {
      const at::Tensor& rows = batch["inputs"];
      if (!is_dry(rows) && rows.size(0) < 2) throw std::runtime_error("one row has no variance");
      return inner(batch);
    };
    return task;
  }
};

TEST_F(RowsTest, steps_of_2_and_4_samples_tell_the_peak_of_every_microbatch_but_of_1) {
  const FitInput given = input(config_);
  const Fitted free = fit_memory(given);
  ASSERT_TRUE(free.prediction);
  EXPECT_EQ(free.prediction->how, "two steps of 2 and 4 samples");
  const double expected = dry_peak(free.plan);
  EXPECT_NEAR(static_cast<double>(free.prediction->peak_bytes), expected, 0.01 * expected);
  const MemoryForecast forecast = memory_forecast(given, free);
  ASSERT_EQ(forecast.rows.size(), 4u);  // 2, 4, 8, 16
  EXPECT_EQ(forecast.rows.front().microbatch, 2);
  config_.batch.microbatch = 1;
  EXPECT_THAT(line(fit(config_).plan, "predicted_peak"),
              HasSubstr("the model takes at least 2 samples at once"));
  // 15 = 7 · 2 + 1, and one is too few.
  config_.batch.global_batch = "15";
  config_.batch.microbatch = 2;
  EXPECT_THAT(fit(config_).remarks, ::testing::Contains(HasSubstr("15 in microbatches of 2 end")));
}

TEST_F(FitTest, the_forecast_shows_the_fewest_samples_and_no_fewer_as_what_needs_less) {
  FitInput given = input(config_);
  given.least_samples = 2;
  const auto sizes = [&](int64_t microbatch) {
    given.config.batch.microbatch = microbatch;
    const MemoryForecast forecast = memory_forecast(given, fit_memory(given));
    std::string text;
    for (const auto& row : forecast.rows) text += std::to_string(row.microbatch) + " ";
    for (const auto& other : forecast.alternatives) {
      if (other.what.starts_with("batch.microbatch")) text += other.what;
    }
    return text;
  };
  EXPECT_EQ(sizes(1), "1 2 4 ");
  EXPECT_EQ(sizes(2), "2 4 8 ");
  EXPECT_EQ(sizes(3), "2 3 4 8 batch.microbatch = 2");
  EXPECT_EQ(sizes(8), "2 4 8 16 batch.microbatch = 4");
}

TEST_F(FitTest, the_forecast_grows_with_samples_and_tokens_and_names_what_needs_less) {
  const FitInput given = input(config_);
  const Fitted fitted = fit_memory(given);
  const MemoryForecast forecast = memory_forecast(given, fitted);
  EXPECT_EQ(forecast.lengths, (std::vector<int64_t>{16, 32, 64, 128}));
  ASSERT_EQ(forecast.rows.size(), 5u);  // 1, 2, 4, 8, 16
  for (size_t i = 1; i < forecast.rows.size(); ++i) {
    EXPECT_GE(*forecast.rows[i].peaks[2], *forecast.rows[i - 1].peaks[2]);
  }
  EXPECT_LE(*forecast.rows.back().peaks[1], *forecast.rows.back().peaks[2]);
  EXPECT_EQ(*forecast.rows.back().peaks[2], fitted.prediction->peak_bytes);
  EXPECT_FALSE(forecast.rows.back().peaks[3]);  // more tokens than positions
  ASSERT_GE(forecast.alternatives.size(), 3u);
  for (const auto& other : forecast.alternatives) {
    EXPECT_LT(other.peak_bytes, fitted.prediction->peak_bytes) << other.what;
  }
  // A block has four products: 12 width² per token. Three of them (8 width²) and the attention
  // (2 · 64 tokens · width) are recomputed. A step costs three forwards, including the head:
  // 4 · (8 + 2) · 64² / (3 · (4 · (12 + 2) · 64² + 500 · 64)).
  EXPECT_THAT(to_text(forecast), HasSubstr("21 % more multiply-adds"));
}

}  // namespace
}  // namespace tanren::testing
