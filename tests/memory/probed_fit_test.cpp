// Models that cannot run dry: two real steps of few samples tell what they need, and no microbatch
// has fewer samples than they take.
#include "tests/memory/fit_fixture.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/forecast/enough_samples.h"
#include "tanren/forecast/memory_forecast.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace tanren::testing {
namespace {

using ::testing::HasSubstr;

// Issue 30. The line is measured once: by two steps without accumulation, and two with it.
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

// The task says that it cannot run dry, and counts the dry runs that make or call it.
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
  // A predictor without this option asks the task.
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

// The factory makes a new module each time, but all of them share the first weight's memory.
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

// A requested microbatch is kept, and the run refuses the step that it cannot make.
TEST_F(LeastTest, a_microbatch_that_leaves_fewer_to_any_rank_is_told_before_the_run) {
  const auto told = [&](int64_t microbatch, int64_t samples, int64_t ranks) {
    config_.data.train.samples = samples;
    dataset_ = open_dataset(config_.data.train, "data.train");
    config_.batch.microbatch = microbatch;
    config_.parallel = {};
    if (ranks > 1) {
      config_.parallel.ranks = "threads";
      config_.parallel.replicas = ranks;
    }
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
            "microbatches of 4 end with 1; change "
            "batch.global_batch or batch.microbatch, or leave an epoch's short "
            "last batch out (data.last = \"drop\")");
  EXPECT_EQ(told(5, 26, 1), "") << "5 + 5 + 3";
  EXPECT_EQ(told(7, 26, 2), "");
  EXPECT_THAT(told(7, 28, 1), HasSubstr("and 2 in microbatches of 7 end with 2"));
}

// The real steps may take all memory that the replicas share, but each replica only half of it.
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

// Its task takes 4, 8 or 12 samples.
class MultipleTest : public UntraceableTest {
 protected:
  Task make(const RunConfig& config) const override {
    Task task = UntraceableTest::make(config);
    task.facts.least_samples = 4;
    task.phases.front().forward = [inner = task.phases.front().forward](const Batch& batch) {
      const at::Tensor& inputs = batch["inputs"];
      if (!is_dry(inputs)) {
        EXPECT_THAT(inputs.size(0), ::testing::AnyOf(4, 8, 12));
      }
      return inner(batch);
    };
    return task;
  }
  FitInput fours(const RunConfig& config) const {
    FitInput given = input(config);
    given.least_samples = 4;
    given.counts = {.most = 14, .multiple = 4};
    return given;
  }
};

TEST_F(MultipleTest, no_microbatch_has_another_number_of_samples) {
  config_.model.hidden_size = 128;
  config_.data.train.samples = 64;
  dataset_ = open_dataset(config_.data.train, "data.train");
  config_.batch.global_batch = "64";
  const Fitted free = fit_memory(fours(config_));
  ASSERT_TRUE(free.prediction);
  EXPECT_EQ(free.prediction->how, "two steps of 4 and 8 samples");
  EXPECT_EQ(free.plan.batch.microbatch, 12);
  EXPECT_THAT(line(free.plan, "microbatch"), HasSubstr("takes at most 14 samples at once"));
  EXPECT_TRUE(free.remarks.empty()) << free.remarks.front();
  const double expected = dry_peak(free.plan);
  EXPECT_NEAR(static_cast<double>(free.prediction->peak_bytes), expected, 0.01 * expected);
  RunConfig config = config_;
  config.batch.microbatch = 8;
  const FitInput given = fours(config);
  const int64_t needs = taken(try_config(given, config).prediction.peak_bytes);
  config.memory.limit = std::to_string(smallest_limit(needs) << 20);
  config.asked.insert("memory.limit");
  config.batch.microbatch = 0;
  EXPECT_EQ(fit_memory(fours(config)).plan.batch.microbatch, 8);
}

TEST_F(MultipleTest, another_microbatch_that_is_asked_for_has_no_prediction) {
  config_.asked.insert("batch.microbatch");
  for (const int64_t microbatch : {6, 16}) {
    config_.batch.microbatch = microbatch;
    const Fitted fitted = fit_memory(fours(config_));
    EXPECT_EQ(fitted.plan.batch.microbatch, microbatch);
    EXPECT_THAT(line(fitted.plan, "predicted_peak"),
                HasSubstr("takes 4 to 14 in multiples of 4 samples at once, and this is a "
                          "microbatch of " +
                          std::to_string(microbatch)));
  }
}

// 97 samples: a batch of 64 and one of 33.
TEST(EnoughSamples, keep_the_number_of_microsteps_if_they_can_and_never_pass_what_fits) {
  BatchPlan batch;
  batch.global_batch = batch.per_rank = 64;
  const auto chosen = [&](int64_t fits, int64_t samples, const SampleCounts& counts) {
    batch.microbatch = fits;
    return with_enough(batch, samples, counts);
  };
  EXPECT_EQ(chosen(40, 97, {.least = 1}), 32);
  EXPECT_EQ(chosen(40, 97, {.least = 3}), 33) << "33 = 32 + 1";
  EXPECT_EQ(chosen(32, 97, {.least = 3}), 30) << "33 does not fit, and 64 = 31 + 31 + 2";
  EXPECT_EQ(chosen(40, 100, {.least = 8, .multiple = 4}), 36) << "36 = 32 + 4";
  EXPECT_EQ(chosen(35, 100, {.least = 8, .multiple = 4}), 28);
  batch.global_batch = batch.per_rank = 66;
  EXPECT_EQ(chosen(4, 71, {.least = 3, .most = 4}), 3) << "no split serves the last 5";
}

// Its task does not say that it fails with one sample.
class FewRowsTest : public UntraceableTest {
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

TEST_F(FewRowsTest, steps_of_2_and_4_samples_tell_the_peak_of_every_microbatch_but_of_1) {
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

}  // namespace
}  // namespace tanren::testing
