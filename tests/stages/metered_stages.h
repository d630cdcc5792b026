// What each stage of a run in stages holds, metered in a real update and predicted. Included by
// tests only.
#pragma once

#include "tanren/comm/with_parts.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/forecast/dry_step.h"
#include "tanren/forecast/predict_stages.h"
#include "tests/support/stage_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tanren::testing {

// Eight blocks, in microbatches of two samples.
inline RunConfig gpt_config(const std::string& mode, int64_t microbatches) {
  RunConfig config = tiny_config("gpt2");
  config.run.device = "cpu";
  set_precision(config, mode);
  config.model.num_layers = 8;
  config.model.hidden_size = 64;
  config.model.num_heads = 2;
  config.model.vocab_size = 500;
  config.model.context_length = 64;
  config.model.dropout = 0.1;
  config.data.train.fields = {"inputs: int[64] in [0, 49]", "labels: int[64] in [0, 49]"};
  config.batch.global_batch = std::to_string(2 * microbatches);
  config.batch.microbatch = 2;
  return config;
}

// Each rank is a thread that alone makes and frees its tensors: messages go over connections.
inline void over_connections(int stages, int replicas,
                             const std::function<void(const RankAxes&)>& each) {
  on_gloo_ranks(stages * replicas, [&](Communicator& world) {
    const int stage = world.rank() / replicas, replica = world.rank() % replicas;
    with_parts(world, replica, [&](const std::shared_ptr<Communicator>& pipeline) {
      RankAxes axes{.world = RankAxis(std::shared_ptr<Communicator>(&world, [](Communicator*) {})),
                    .data = RankAxis(),
                    .pipeline = RankAxis(pipeline)};
      if (replicas == 1) return each(axes);
      with_parts(world, stage, [&](const std::shared_ptr<Communicator>& data) {
        axes.data = RankAxis(data);
        each(axes);
      });
    });
  });
}

// What the first replica of each stage holds in an update of the run, and the most before any.
struct Metered {
  MemoryPrediction step;
  int64_t start_bytes = 0;
};

inline std::vector<Metered> metered(const StagedRun& run, int update) {
  const auto count = static_cast<size_t>(run.stages);
  std::vector<const TraceScope*> traces(count);
  std::vector<Metered> stages(count);
  const OnRanks ranks = [&](const auto& each) {
    over_connections(run.stages, run.replicas, [&](const RankAxes& axes) {
      const TraceScope tracing;
      if (axes.data.is_first()) traces[static_cast<size_t>(axes.pipeline.rank())] = &tracing;
      each(axes);
    });
  };
  on_mesh(ranks, run, [&](StageRank& rank) {
    const auto stage = static_cast<size_t>(rank.state.stage->stage);
    const bool is_metered = rank.parts.ranks->data().is_first();
    const size_t start = is_metered ? traces[stage]->size() : 0;
    for (int i = 1; i < update; ++i) rank.step();
    const size_t before = is_metered ? traces[stage]->size() : 0;
    rank.step();
    if (!is_metered) return;
    const MemoryTrace trace = traces[stage]->trace();
    int64_t sum = 0;
    for (size_t i = 0; i < start; ++i) {
      sum += trace[i].bytes;
      stages[stage].start_bytes = std::max(stages[stage].start_bytes, sum);
    }
    stages[stage].step = traced_peak(trace, before);
  });
  return stages;
}

// Predicts the stages of the same cut as the run's.
inline std::vector<StagePrediction> predicted(const StagedRun& run) {
  RunConfig config = run.config;
  config.parallel.pipeline = run.stages;
  Plan plan = rank_plan(config, run.task(), run.data, /*rank=*/0, run.stages * run.replicas);
  plan.parallel.schedule = run.schedule;
  const auto make_task = [&] { return run.task(); };
  const ModelBlocks blocks = block_profile(plan, make_task, collated(run.data, {0, 1}).batch);
  StagesPredictor predictor(plan, blocks, make_task, run.data);
  return predictor.of(cut_balanced(blocks, {.stages = run.stages}).value());
}

inline int64_t kind_bytes(const MemoryPrediction& prediction, MemoryKind kind) {
  return prediction.at_peak.at(static_cast<size_t>(kind));
}

// "weights 12, gradients 8, …": the bytes at the peak.
inline std::string kinds_text(const MemoryPrediction& prediction) {
  std::string text;
  for (size_t i = 0; i < prediction.at_peak.size(); ++i) {
    text += " " + std::string(name(static_cast<MemoryKind>(i))) + " " +
            std::to_string(prediction.at_peak[i]);
  }
  return text;
}

// Returns what was metered.
inline std::vector<Metered> expect_predicted(const StagedRun& run, double tolerance,
                                             const std::string& what, int update = 1) {
  const auto told = predicted(run);
  auto real = metered(run, update);
  EXPECT_EQ(told.size(), real.size());
  for (size_t i = 0; i < std::min(told.size(), real.size()); ++i) {
    const std::string where = what + ", stage " + std::to_string(i + 1);
    const MemoryPrediction &step = told[i].step, &meter = real[i].step;
    std::printf("%-20s predicted %9lld, metered %9lld\n", where.c_str(),
                static_cast<long long>(step.peak_bytes), static_cast<long long>(meter.peak_bytes));
    const auto near = [&](int64_t own, int64_t other) {
      EXPECT_NEAR(static_cast<double>(own), static_cast<double>(other),
                  tolerance * static_cast<double>(other))
          << where << ": predicted" << kinds_text(step) << "; metered" << kinds_text(meter);
    };
    near(step.peak_bytes, meter.peak_bytes);
    near(told[i].start_bytes, real[i].start_bytes);
    for (const MemoryKind kind :
         {MemoryKind::weights, MemoryKind::gradients, MemoryKind::optimizer}) {
      // With zero 2, a bucket of gradients is whole for a while.
      if (run.config.parallel.zero == 2 && kind == MemoryKind::gradients) continue;
      EXPECT_EQ(kind_bytes(step, kind), kind_bytes(meter, kind)) << where << ", " << name(kind);
    }
  }
  return real;
}

}  // namespace tanren::testing
