// A plan fits the available memory or is refused before the start, and its predictions hold.
#include "tests/memory/fit_fixture.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/forecast/memory_forecast.h"

#include <gmock/gmock.h>

namespace tanren::testing {
namespace {

using ::testing::HasSubstr;

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
  // Lowers the limit until one rank does not fit.
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
