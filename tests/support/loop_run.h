// Whole runs on ranks that are threads, for tests: configs with evaluation and checkpoints, run folders of
// their own, and their logs compared.
#pragma once

#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/run/run.h"
#include "tests/support/tiny_run.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {

inline RunConfig looped_config(int64_t replicas) {
  auto config = tiny_config("mlp");
  config.run.steps = 9;
  config.run.threads = 2;
  config.model.dropout = 0.2;
  config.batch.global_batch = "14";  // 64 samples: the last batch of an epoch has 8
  config.schedule.kind = "cosine";
  config.clip.norm = 1;
  config.data.eval = config.data.train;
  config.data.eval.samples = 31;  // of 2 or 3 ranks none has as many as another
  config.evaluate.every = 4;
  config.evaluate.metrics = {"accuracy", "top2", "f1_macro", "auroc"};
  config.checkpoint.every = 4;
  config.parallel.check_every = 2;
  if (replicas > 1) {
    config.parallel.data = "threads";
    config.parallel.replicas = replicas;
  }
  return config;
}

class Loop : public ::testing::Test {
 protected:
  RunOutput go(const RunConfig& config, const std::string& folder,
               const std::atomic<bool>* stop = nullptr, std::vector<Sink*> sinks = {}) {
    RunInput input;
    input.config = config;
    input.folder = folder_.path() / folder;
    input.stop = stop;
    input.sinks = std::move(sinks);
    input.started = [this](const Plan& plan, const auto&, const std::vector<std::string>& ranks) {
      plan_ = plan;
      ranks_ = ranks;
    };
    return run(input, ModelRegistry());
  }
  std::vector<nlohmann::json> log(const std::string& folder) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(folder_.path() / folder / "log.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  // Numbers within 1e-9, all else the same.
  void expect_same_log(const std::string& a, const std::string& b) const {
    const auto one = log(a), other = log(b);
    ASSERT_EQ(one.size(), other.size());
    for (size_t i = 0; i < one.size(); ++i)
      expect_same(one[i], other[i], "line " + std::to_string(i));
  }
  static void expect_same(const nlohmann::json& a, const nlohmann::json& b,
                          const std::string& where) {
    if (a.is_object()) {
      for (const auto& [key, value] : a.items()) {
        // How many microsteps a rank makes is its own business.
        if (key == "timing" || key == "microsteps" || key == "seconds") continue;
        ASSERT_TRUE(b.contains(key)) << where << " " << key;
        expect_same(value, b[key], where + "." + key);
      }
    } else if (a.is_number_float()) {
      EXPECT_NEAR(a.get<double>(), b.get<double>(), 1e-9 * std::max(1.0, std::abs(a.get<double>())))
          << where;
    } else {
      EXPECT_EQ(a, b) << where;
    }
  }

  TemporaryFolder folder_;
  Plan plan_;
  std::vector<std::string> ranks_;
};

}  // namespace tanren::testing
