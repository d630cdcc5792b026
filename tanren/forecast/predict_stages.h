// Predicts what each stage of a run in stages holds: a dry run of one update of that stage alone,
// by the run's own code, with its schedule, microbatches and messages. Called by fit_stages and
// stage_search, and by users who want a prediction before their own run.
#pragma once

#include "tanren/forecast/predict.h"
#include "tanren/plan/pipeline_cut.h"
#include "tanren/train/run_state.h"
#include "tanren/train/stage_plan.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace tanren {

struct StagePrediction {
  MemoryPrediction step;    // of one update; without its multiply-adds
  int64_t whole_bytes = 0;  // of the whole model, which each rank makes first
  // The largest number of bytes before the first step. Either the whole model counts, which exists
  // until the stage drops the other stages' parts, or the stage with its gradients and optimizer
  // state.
  int64_t start_bytes = 0;
};

class StagesPredictor {
 public:
  // `plan` has as many stages (parallel.pipeline) as the cuts will have. `blocks`, `dataset` and
  // whatever `make_task` refers to must outlive the predictor; `make_task` builds a new task in
  // each call.
  StagesPredictor(const Plan& plan, const ModelBlocks& blocks, std::function<Task()> make_task,
                  const Dataset& dataset);

  // One for each stage, as on the first replica. A stage that was predicted before is not run
  // again. Error if the model needs values, which a dry run does not have; ConfigError if a run of
  // the task cannot be in these stages.
  std::vector<StagePrediction> of(const PipelineCut& cut);

 private:
  struct Known {
    StagePrediction prediction;
    KnownShapes shapes;  // of what it sends
  };
  // Its number, blocks [begin, end), and the names that it holds with other stages.
  using Key = std::tuple<int64_t, size_t, size_t, std::string>;

  Known run(const StagePlan& stage, const KnownShapes& before) const;

  Plan plan_;  // of one window
  const ModelBlocks& blocks_;
  std::function<Task()> make_task_;
  Collated one_;                      // sample, the longest of the first ones
  int64_t samples_ = 0;               // of a whole window
  int64_t passed_on_samples_ = 0;     // the same for a gpipe stage that holds only messages
  int64_t missing_microbatches_ = 0;  // microbatches in flight that the window lacks
  std::map<Key, Known> known_;
};

}  // namespace tanren
