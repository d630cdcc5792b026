// The cut of a model into stages: which consecutive blocks (blocks/block.h) each stage of a
// pipeline has, chosen by what the blocks cost or named in a config. Torch-free and pure; the costs
// come from a dry run (forecast/block_profile.h) or from measured seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct WeightCost {
  std::string name;
  int64_t bytes = 0;        // of the weight, and of its casts if it has any
  int64_t state_bytes = 0;  // of its gradient, optimizer state and averages
};

// One passage through an outermost block.
struct BlockCost {
  std::string name;
  double forward = 0;      // multiply-adds, or seconds, of one sample
  double backward = 0;     // in the same unit
  int64_t kept_bytes = 0;  // of one sample, from the forward to the backward, without its input
  // The part of `kept_bytes` that code before the block keeps. All later stages also run that code.
  int64_t kept_before = 0;
  int64_t output_bytes = 0;     // of one sample
  std::string obstacle;         // why a cut after it is impossible, as a clause; empty: possible
  std::vector<size_t> weights;  // weights that it uses: places in ModelBlocks::weights
  // The part of `weights` that code before the block reads. All later stages also run that code.
  std::vector<size_t> weights_before = {};
  std::vector<size_t> buffers = {};  // buffers that it reads: places in ModelBlocks::buffers
};

struct ModelBlocks {
  std::vector<BlockCost> blocks;  // in the order of a forward
  std::vector<WeightCost> weights;
  std::vector<std::string> buffers = {};  // names
  // Buffers that code outside of blocks reads: places in `buffers`.
  std::vector<size_t> buffers_outside = {};
  // Buffers that the forward changes: places in `buffers`.
  std::vector<size_t> buffers_written = {};
};

// A cut: the first block of each later stage, as rising places in ModelBlocks::blocks.
using PipelineCut = std::vector<size_t>;

// Consecutive blocks [begin, end) as a stage, counted from 0.
struct StageSpan {
  size_t stage = 0;
  size_t begin = 0, end = 0;
};

struct CutOptions {
  int64_t stages = 1;
  int64_t samples = 1;             // of a microbatch
  std::vector<int64_t> in_flight;  // per stage: microbatches held at most; empty: one in each
  int64_t most_samples = 0;        // of a window that a stage can hold at once; 0: no bound
  int64_t limit_bytes = 0;         // of each stage; 0: none
  // Known not to fit. The same stage with these blocks and more does not fit either.
  std::vector<StageSpan> too_large = {};
  std::vector<PipelineCut> ruled_out = {};  // known to be impossible
};

struct StageCost {
  size_t begin = 0, end = 0;         // blocks
  double forward = 0, backward = 0;  // of one sample, as the blocks'
  // Its weights, each counted once, and their state, and for each microbatch in flight the kept
  // bytes and the input. A stage that uses a weight of another stage also holds it. Code before
  // blocks of earlier stages adds its weights and kept bytes, because the stage runs it again.
  int64_t bytes = 0;

  double work() const { return forward + backward; }
};

// What each stage of the cut costs. options.stages must be cut.size() + 1.
std::vector<StageCost> stage_costs(const ModelBlocks& model, const PipelineCut& cut,
                                   const CutOptions& options);

// Why there can be no cut before the block at this place, as a clause; empty: there can be one.
std::string cut_obstacle(const ModelBlocks& model, size_t place);

// The cut whose slowest stage has the least work, among those that are possible, not ruled out, and
// whose stages all fit the limit and are not too large. Among equal cuts, it is the one whose first
// cut is earliest, then the second, and so on. No value: there is none.
std::optional<PipelineCut> cut_balanced(const ModelBlocks& model, const CutOptions& options);
// Among the cuts that are not ruled out, the one whose largest stage has the fewest bytes. It
// ignores the limit. The bytes of that stage are the least limit under which the model can have
// this many stages. No value: the model cannot be cut like this.
std::optional<PipelineCut> cut_smallest(const ModelBlocks& model, const CutOptions& options);

// An error line about parallel.pipeline = `stages` and parallel.cut_at, or about the first wrong
// name in cut_at. Empty: there is no problem. `cut_at` names the first block of each later stage;
// empty: left to the plan.
std::string check_cut(const ModelBlocks& model, int64_t stages,
                      const std::vector<std::string>& cut_at);
// The cut with these names, in which check_cut() found no problem.
PipelineCut cut_named(const ModelBlocks& model, const std::vector<std::string>& cut_at);

}  // namespace tanren
