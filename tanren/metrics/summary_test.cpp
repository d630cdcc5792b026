#include "tanren/metrics/summary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace tanren {
namespace {

TEST(Summary, writes_null_for_a_loss_that_is_not_finite) {
  Summary summary;
  summary.final_loss = std::nan("");
  EXPECT_TRUE(nlohmann::json::parse(to_json(summary)).at("final_loss").is_null());
}

TEST(Summary, has_exactly_the_documented_keys) {
  Summary summary{.steps = 90,
                  .attempts = 92,
                  .samples_per_second = 1234.5,
                  .wall_seconds = 3,
                  .startup_seconds = 0.25,
                  .final_loss = 0.125,
                  .evaluate = {{"loss", 0.5}, {"accuracy", 0.98}},
                  .peak_memory_bytes = 1 << 20,
                  .peak_tensor_bytes = 1 << 18,
                  .predicted_peak_bytes = 1 << 17,
                  .skipped_steps = 2,
                  .device_reads_per_step = 1,
                  .growth = "each step leaves 3 tensors",
                  .status = "finished"};
  const auto json = nlohmann::ordered_json::parse(to_json(summary));
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  const std::vector<std::string> expected{"steps",
                                          "attempts",
                                          "samples_per_second",
                                          "wall_seconds",
                                          "startup_seconds",
                                          "final_loss",
                                          "evaluate.loss",
                                          "evaluate.accuracy",
                                          "peak_memory_bytes",
                                          "peak_tensor_bytes",
                                          "predicted_peak_bytes",
                                          "skipped_steps",
                                          "device_reads_per_step",
                                          "growth",
                                          "status"};
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(json.at("steps"), 90);
  EXPECT_EQ(json.at("attempts"), 92);
  EXPECT_EQ(json.at("evaluate.accuracy"), 0.98);
  EXPECT_EQ(json.at("skipped_steps"), 2);
  EXPECT_EQ(json.at("status"), "finished");
  EXPECT_EQ(json.at("growth"), "each step leaves 3 tensors");
}

TEST(Summary, of_a_failed_run_has_its_cause_and_nothing_that_needs_an_end_to_be_measured) {
  const Summary summary{.steps = 3, .status = "failed", .reason = "[room] no", .cause = "disk"};
  const auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json.at("reason"), "[room] no");
  EXPECT_EQ(json.at("cause"), "disk");
  for (const char* key : {"samples_per_second", "startup_seconds", "device_reads_per_step"}) {
    EXPECT_FALSE(json.contains(key)) << key;
    EXPECT_TRUE(nlohmann::json::parse(to_json(Summary{})).contains(key)) << key;
  }
}

TEST(Summary, leaves_out_what_was_not_counted_and_what_nobody_was_warned_of) {
  const auto json = nlohmann::json::parse(to_json(Summary{}));
  EXPECT_FALSE(json.contains("peak_tensor_bytes"));
  EXPECT_FALSE(json.contains("predicted_peak_bytes"));
  EXPECT_FALSE(json.contains("growth"));
}

}  // namespace
}  // namespace tanren
