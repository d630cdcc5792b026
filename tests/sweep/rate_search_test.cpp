// The updates of a learning-rate finder: one whole batch for each rate, and what ends them.
#include "cli/sweep/rate_search.h"
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/config/write_config.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/supervised.h"
#include "cli/sweep/find_rate.h"
#include "tests/support/gan.h"
#include "tests/support/tiny_run.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace tanren::cli {
namespace {

Datasets data_of(const RunConfig& config) {
  return open_datasets(config.data, Registry().datasets);
}

bool begins_as_finder_rates(const std::vector<double>& rates) {
  const std::vector<double> all = finder_rates();
  return rates.size() <= all.size() && std::equal(rates.begin(), rates.end(), all.begin());
}

TEST(RateSearch, makes_an_update_of_a_whole_batch_with_each_rate) {
  RunConfig config = testing::tiny_config("mlp");
  config.batch.microbatch = 30;
  Rehearsal whole(config, Registry(), data_of(config));
  const RateSearch search = search_rates(whole);
  EXPECT_GE(search.rates.size(), 50u);
  EXPECT_TRUE(begins_as_finder_rates(search.rates));
  EXPECT_EQ(search.losses.size(), search.rates.size());
  EXPECT_EQ(search.trend.smoothed().size(), search.rates.size());
  EXPECT_TRUE(search.rates.size() == 100 || !search.end.empty());
  EXPECT_EQ(whole.state().attempt, std::ssize(search.rates));
  config.batch.microbatch = 10;
  Rehearsal split(config, Registry(), data_of(config));
  const RateSearch other = search_rates(split);
  EXPECT_EQ(split.state().attempt, std::ssize(other.rates));
  ASSERT_GE(other.losses.size(), 50u);
  for (size_t i = 0; i < 50; ++i) EXPECT_NEAR(other.losses[i], search.losses[i], 1e-9) << i;
}

TEST(RateSearch, counts_no_batch_that_fp16_skips) {
  RunConfig config = testing::tiny_config("mlp");
  config.precision.mode = "fp16";
  config.precision.initial_scale = "1099511627776";  // 2^40
  Rehearsal run(config, Registry(), data_of(config));
  const RateSearch search = search_rates(run);
  EXPECT_GE(search.rates.size(), 50u);
  EXPECT_TRUE(begins_as_finder_rates(search.rates));
  EXPECT_GT(run.state().attempt, std::ssize(search.rates) + 5);
  EXPECT_EQ(run.state().step(), std::ssize(search.rates));
  EXPECT_TRUE(std::all_of(search.losses.begin(), search.losses.end() - 1,
                          [](double loss) { return std::isfinite(loss); }));
}

// A model whose loss is not a number from the 21st batch on.
Registry with_late_ruin() {
  ModelRegistry models;
  models.add("late_ruin", [](const ModelOptions& options, const DataInfo& info) {
    Task task = supervised(std::make_shared<torch::nn::LinearImpl>(6, 5), options, info);
    auto& forward = task.phases[0].forward;
    forward = [inner = forward, calls = std::make_shared<int64_t>(0)](const Batch& batch) {
      Terms terms = inner(batch);
      if (!is_dry(batch["inputs"]) && ++*calls > 20) {
        terms[0].sum = terms[0].sum * std::numeric_limits<double>::quiet_NaN();
      }
      return terms;
    };
    return task;
  });
  models.add("gan",
             [](const ModelOptions&, const DataInfo&) { return testing::one_forward_gan(); });
  return Registry(std::move(models), DatasetRegistry());
}

TEST(RateSearch, ends_where_the_guard_ends_the_run) {
  RunConfig config = testing::tiny_config("late_ruin");
  config.data.train.fields = {"inputs: float[6] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.batch.microbatch = 30;
  Rehearsal stopped(config, with_late_ruin(), data_of(config));
  const RateSearch search = search_rates(stopped);
  EXPECT_EQ(search.rates.size(), 21u);
  EXPECT_EQ(search.end, "the guard stopped it: non-finite loss");
  EXPECT_EQ(stopped.state().step(), 20);
  config.guard.nan_loss = "skip";
  config.guard.max_skips = 3;
  Rehearsal skipped(config, with_late_ruin(), data_of(config));
  EXPECT_EQ(search_rates(skipped).rates.size(), 21u);
  EXPECT_EQ(skipped.state().attempt, 23);
}

TEST(FindRate, refuses_a_task_with_several_objectives_before_it_writes) {
  const testing::TemporaryFolder folder;
  Arguments arguments;
  arguments.file = folder.file("gan.toml", to_toml(testing::gan_config()));
  arguments.sets = {"sweep.find=learning_rate"};
  arguments.out = (folder.path() / "s").string();
  const Registry registry = with_late_ruin();
  EXPECT_TRUE(asks_to_find(arguments, registry));
  TANREN_EXPECT_CONTAINS(testing::error_of<ConfigError>([&] { find_rate(arguments, registry); }),
                         "[sweep] the task has 2 objectives, each with a learning rate of its own");
  EXPECT_EQ(folder.num_entries(), 1u);
}

}  // namespace
}  // namespace tanren::cli
