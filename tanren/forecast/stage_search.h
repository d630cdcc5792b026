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

// The most before the first step of all ranks in threads. One after the other makes the whole model
// and keeps its stage, while the first one's whole model is there, too. The last one has the stages
// of all others beside it.
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
  // By `plan` of `config`, which has the stages. All outlive the search.
  StageSearch(const FitInput& input, const RunConfig& config, const Plan& plan,
              const ModelBlocks& blocks, CutBudget& budget);

  // Bytes that the limit leaves for a rank, with processes the least limit of all; 0: no limit.
  int64_t room() const { return room_; }
  TriedCut tried(const PipelineCut& cut);
  // The cut whose slowest stage has the fewest multiply-adds, of those that fit. Each that is too
  // large rules out others; one whose dry run ends in an error is passed over, a few times. No
  // value: none of those that were tried does.
  std::optional<TriedCut> fastest();
  // The cut whose largest stage is the smallest, by what its blocks keep, of those whose dry run
  // ends without an error. No value: the model cannot have so many stages.
  std::optional<TriedCut> smallest();

 private:
  std::optional<TriedCut> offered(const PipelineCut& cut);

  const Plan& plan_;
  CutBudget& budget_;
  const int64_t room_;
  ModelBlocks least_;  // with no more bytes than its blocks need in a dry run
  CutOptions options_;
  StagesPredictor predictor_;
};

}  // namespace tanren
