// For tests: whole runs on ranks that are threads, with evaluation and checkpoints. Each run has
// its own folder, and the logs of two runs can be compared.
#pragma once

#include "tanren/base/testing.h"
#include "tanren/run/run.h"
#include "tests/support/run_log.h"
#include "tests/support/tiny_run.h"

#include <gtest/gtest.h>

#include <atomic>
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
  config.data.eval.samples = 31;  // neither 2 nor 3 ranks divide it evenly
  config.evaluate.every = 4;
  config.evaluate.metrics = {"accuracy", "top2", "f1_macro", "auroc"};
  config.checkpoint.every = 4;
  config.parallel.check_every = 2;
  if (replicas > 1) {
    config.parallel.ranks = "threads";
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
    return run(input, test_registry());
  }
  void expect_same(const std::string& a, const std::string& b) const {
    expect_same_log(folder_.path() / a, folder_.path() / b);
  }

  TemporaryFolder folder_;
  Plan plan_;
  std::vector<std::string> ranks_;
};

}  // namespace tanren::testing
