// What a window of a stage is predicted from.
#include "tests/stages/metered_stages.h"
#include "tests/stages/staged_models.h"

#include "tanren/forecast/predict_stages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

// stage_memory_test compares these peaks with those of real windows.
TEST(StageWindow, of_gpipe_is_predicted_from_five_microbatches) {
  const StagedModel model("mlp", "fp32", /*samples=*/256);
  constexpr int64_t kMicrobatch = 4;
  int64_t forwards = 0;
  const auto make_task = [&] {
    Task task = StagedRun{.config = model.config, .data = *model.data}.task();
    auto& forward = task.phases.front().forward;
    forward = [&forwards, inner = forward](const Batch& batch) {
      ++forwards;
      return inner(batch);
    };
    return task;
  };
  const auto peaks = [&](int64_t microbatches) {
    RunConfig config = model.config;
    config.parallel.pipeline = 2;
    config.batch.microbatch = kMicrobatch;
    // The last one has one sample.
    config.batch.global_batch = std::to_string(kMicrobatch * microbatches - 3);
    Plan plan = rank_plan(config, make_task(), *model.data, /*rank=*/0, /*world_size=*/2);
    plan.parallel.schedule = PipelineSchedule::gpipe;
    const ModelBlocks blocks = block_profile(plan, make_task, collated(*model.data, {0, 1}).batch);
    StagesPredictor predictor(plan, blocks, make_task, *model.data);
    forwards = 0;
    std::vector<int64_t> bytes;
    for (const auto& stage : predictor.of(cut_balanced(blocks, {.stages = 2}).value())) {
      bytes.push_back(stage.step.peak_bytes);
    }
    return bytes;
  };
  const auto few = peaks(3);
  EXPECT_EQ(forwards, 2 * 3) << "all of them";
  const auto some = peaks(16), more = peaks(24), most = peaks(32);
  EXPECT_EQ(forwards, 2 * 5);
  ASSERT_EQ(most.size(), 2u);
  for (size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(most[stage] - more[stage], more[stage] - some[stage]);
    EXPECT_GT(most[stage] - more[stage], 8 * kMicrobatch * 16 * 4) << "a layer's output each";
    EXPECT_LT(few[stage], some[stage]);
  }
}

// A stage keeps no microbatch if nothing in or below it is trained.
TEST(StageWindow, of_gpipe_is_predicted_where_a_stage_passes_microbatches_on) {
  RunConfig config = gpt_config("fp32", 1);
  config.batch.microbatch = 1;
  config.batch.global_batch = "64";
  config.model.freeze = {"*"};
  config.model.unfreeze = {{{"transformer.h.7.*"}, 0}};
  const auto data = open_dataset(config.data.train, "data.train");
  StagedRun run{.config = config, .data = *data, .stages = 2};
  run.schedule = PipelineSchedule::gpipe;
  expect_predicted(run, 0.03, "gpipe, passed on");
}

}  // namespace
}  // namespace tanren::testing
