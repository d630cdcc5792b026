// StageSearch: tries cuts of a model into stages against memory.limit, by dry runs of their stages.
// Internal to forecast/.
#pragma once

#include "tanren/forecast/fit_memory.h"
#include "tanren/forecast/predict_stages.h"
#include "tanren/plan/pipeline_cut.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tanren {

// The most bytes before the first step, if all ranks are threads. The ranks make the whole model
// one after the other, and each keeps its stage. The first rank's whole model exists during this
// time. When the last rank makes the model, the stages of all others exist too.
int64_t start_of_threads(const std::vector<StagePrediction>& stages, int64_t replicas);

struct TriedCut {
  PipelineCut cut;
  std::vector<StagePrediction> stages;
  std::vector<int64_t> needs;  // of each stage: the largest peak that its rank must have room for
  int64_t start_bytes = 0;     // of this process before its ranks hold their stages alone
  bool start_fits = true;
  bool fits = true;

  // The stage that needs most.
  size_t largest() const;
};

// How many cuts the searches that share it may still try; each takes a dry run of each new stage.
struct CutBudget {
  int cuts = 64;
};

class StageSearch {
 public:
  // `plan` is made from `config` and has the number of stages. All arguments must outlive the
  // search.
  StageSearch(const FitInput& input, const RunConfig& config, const Plan& plan,
              const ModelBlocks& blocks, CutBudget& budget);

  // Bytes that the limit leaves for a rank. With ranks in processes, the least of all ranks. 0: no
  // limit.
  int64_t room() const { return room_; }
  TriedCut tried(const PipelineCut& cut);
  // Of the cuts that fit, the one whose slowest stage has the fewest multiply-adds. Each cut that
  // is too large rules out others. A few cuts whose dry run throws are skipped. No value if none of
  // the tried cuts fits.
  std::optional<TriedCut> fastest();
  // Of the cuts whose dry run does not throw, the one whose largest stage is the smallest by the
  // bytes that its blocks keep. No value if there is no such cut, or after a few errors.
  std::optional<TriedCut> smallest();

 private:
  std::optional<TriedCut> offered(const PipelineCut& cut);

  const Plan& plan_;
  CutBudget& budget_;
  const int64_t room_;
  ModelBlocks least_;  // its bytes are a lower estimate (least_bytes)
  CutOptions options_;
  StagesPredictor predictor_;
};

}  // namespace tanren
