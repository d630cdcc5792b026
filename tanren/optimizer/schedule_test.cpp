#include "tanren/optimizer/schedule.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/fixture_test_util.h"

#include <gtest/gtest.h>

#include <functional>

namespace tanren {
namespace {

constexpr int64_t kTotal = 40;
constexpr double kPeak = 0.3;

TEST(Schedule, an_unknown_kind_names_the_nearest) {
  try {
    learning_rate({.kind = "cosin"}, 1, 0, 10);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'cosine'"), std::string::npos) << error.what();
  }
}

TEST(Schedule, equals_transformers_after_the_warm_up_and_is_one_step_ahead_in_it) {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    for (const int64_t warmup : {0, 1, 8}) {
      const at::Tensor rates =
          testing::fixture("schedule").at(std::string(kind) + "/" + std::to_string(warmup));
      for (int64_t step = 0; step < kTotal; ++step) {
        const int64_t theirs = step < warmup ? step + 1 : step;
        EXPECT_NEAR(learning_rate({.kind = kind, .warmup_steps = warmup}, kPeak, step, kTotal),
                    rates[theirs].item<double>(), 1e-15)
            << kind << " " << warmup << " " << step;
      }
    }
  }
}

struct ScheduleCase {
  const char* name;
  ScheduleOptions options;
};

// The C++ side of the cases in tests/fixtures/make/optimizer_fixtures.py.
std::vector<ScheduleCase> schedule_cases() {
  using O = ScheduleOptions;
  std::vector<ScheduleCase> cases;
  const auto add = [&](const char* name, const char* kind, int64_t warmup,
                       const std::function<void(O&)>& change) {
    cases.push_back({name, {.kind = kind, .warmup_steps = warmup}});
    change(cases.back().options);
  };
  add("restarts", "cosine_with_restarts", 0, [](O& o) { o.cycles = 4; });
  add("restarts_warm", "cosine_with_restarts", 7, [](O& o) { o.cycles = 3; });
  add("polynomial", "polynomial", 5, [](O& o) { o.power = 2, o.final_fraction = 0.1; });
  add("inverse_sqrt", "inverse_sqrt", 8, [](O&) {});
  add("inverse_sqrt_timescale", "inverse_sqrt", 0, [](O& o) { o.timescale = 16; });
  add("step", "step", 0, [](O& o) { o.step_size = 7, o.factor = 0.5; });
  add("multi_step", "multi_step", 0, [](O& o) { o.milestones = {5, 11, 30}, o.factor = 0.3; });
  add("one_cycle", "one_cycle", 0, [](O&) {});
  add("one_cycle_linear", "one_cycle", 0, [](O& o) {
    o.warmup_fraction = 0.55, o.div_factor = 10, o.final_div_factor = 50, o.shape = "linear";
  });
  add("wsd_cosine", "warmup_stable_decay", 0,
      [](O& o) { o.decay_steps = 12, o.final_fraction = 0.1; });
  add("wsd_linear", "warmup_stable_decay", 6, [](O& o) { o.decay_steps = 20, o.shape = "linear"; });
  add("wsd_sqrt", "warmup_stable_decay", 0,
      [](O& o) { o.decay_steps = 12, o.final_fraction = 0.2, o.shape = "1-sqrt"; });
  return cases;
}

TEST(Schedule, every_kind_equals_torch_or_transformers) {
  for (const auto& [name, options] : schedule_cases()) {
    const at::Tensor rates = testing::fixture("schedule_kinds").at(name);
    for (int64_t step = 0; step < rates.size(0); ++step) {
      const int64_t theirs = step < options.warmup_steps ? step + 1 : step;
      EXPECT_NEAR(learning_rate(options, kPeak, step, kTotal), rates[theirs].item<double>(), 1e-14)
          << name << " " << step;
    }
  }
  // torch's restarts never end; tanren's end with the run, here after 6 + 12 + 24 updates.
  ScheduleOptions growing{.kind = "cosine_with_restarts", .final_fraction = 0.1};
  growing.cycles = 3;
  growing.cycle_growth = 2;
  const at::Tensor rates = testing::fixture("schedule_kinds").at("restarts_growing");
  for (int64_t step = 0; step < kTotal; ++step) {
    EXPECT_NEAR(learning_rate(growing, kPeak, step, 42), rates[step].item<double>(), 1e-14) << step;
  }
}

TEST(Schedule, every_kind_is_finite_beyond_the_run_and_in_the_shortest_one) {
  for (const auto& [name, options] : schedule_cases()) {
    for (const int64_t total : {0, 1, 2, 3, 40}) {
      for (const int64_t step : {0, 1, 2, 39, 40, 41, 1000000}) {
        const double rate = learning_rate(options, kPeak, step, total);
        EXPECT_TRUE(rate >= 0 && rate <= kPeak * (1 + 1e-12))
            << name << " " << total << " " << step << ": " << rate;
      }
    }
  }
}

TEST(Schedule, the_plan_tells_the_rates) {
  Plan plan;
  ObjectivePlan& objective = plan.objectives.front();
  objective.total_steps = 41;
  objective.optimizer.learning_rate = 1;
  objective.schedule = {.kind = "linear", .warmup_steps = 10};
  const PlanLine line = schedule_line(plan, 0, Source::asked);
  EXPECT_EQ(line.value, "linear");
  EXPECT_EQ(line.reason.rfind("update 1: 0.1, end of the warm-up (10): 1, half-way (21): 0.677", 0),
            0u)
      << line.reason;
  ObjectivePlan second = objective;
  second.name = "generator";
  second.total_steps = 4;
  second.optimizer.learning_rate = 2;
  second.schedule = {.kind = "linear"};
  plan.objectives.push_back(second);
  const PlanLine other = schedule_line(plan, 1, Source::by_default);
  EXPECT_EQ(other.key, "objectives.generator.schedule");
  EXPECT_EQ(other.reason, "update 1: 2, half-way (2): 1.5, last (4): 0.5");
}

TEST(Schedule, no_update_of_a_run_has_rate_zero) {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    for (const int64_t total : {1, 2, 40}) {
      for (const int64_t warmup : {0, 1, 8}) {
        for (int64_t step = 0; step < total; ++step) {
          EXPECT_GT(learning_rate({.kind = kind, .warmup_steps = warmup}, kPeak, step, total), 0);
        }
      }
    }
  }
}

TEST(Schedule, decays_to_the_final_fraction_and_stays_there) {
  for (const char* kind : {"linear", "cosine"}) {
    const ScheduleOptions options{.kind = kind, .warmup_steps = 4, .final_fraction = 0.1};
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, 4, kTotal), kPeak);
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, kTotal, kTotal), 0.1 * kPeak);
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, 3 * kTotal, kTotal), 0.1 * kPeak);
    EXPECT_DOUBLE_EQ(learning_rate(options, kPeak, 22, kTotal), 0.55 * kPeak);
  }
}

}  // namespace
}  // namespace tanren
