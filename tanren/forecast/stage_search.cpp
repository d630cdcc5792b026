#include "tanren/forecast/stage_search.h"

#include "tanren/base/pipeline_schedule.h"

#include <algorithm>
#include <exception>

namespace tanren {

namespace {

// Most failed cuts in one search. More failures have the same cause.
constexpr size_t kMostErrors = 8;

// Lowers the profile's bytes, because the profile is of a run without recomputation and sharding.
// The patterns of memory.recompute and memory.offload may also match only blocks inside these.
// These bytes only order the cuts; dry runs find the cuts that fit.
ModelBlocks least_bytes(ModelBlocks blocks, const Plan& plan) {
  const bool keeps_little = !plan.memory.recompute.empty() || !plan.memory.offload.empty();
  for (BlockCost& block : blocks.blocks) {
    if (keeps_little) block.kept_bytes = block.kept_before;
  }
  if (plan.parallel.zero == 0) return blocks;
  for (WeightCost& weight : blocks.weights) weight.state_bytes = 0;
  return blocks;
}

CutOptions options_of(const Plan& plan, int64_t room) {
  CutOptions options{.stages = plan.parallel.pipeline, .samples = plan.batch.microbatch};
  options.most_samples = plan.batch.per_rank;
  for (int64_t stage = 0; stage < options.stages; ++stage) {
    options.in_flight.push_back(most_in_flight(pipeline_actions(
        plan.parallel.schedule, stage, options.stages, plan.batch.accumulation_steps)));
  }
  if (room > 0) options.limit_bytes = std::max<int64_t>(largest_peak(room), 1);
  return options;
}

int64_t room_of(const FitInput& input, const Plan& plan) {
  const int64_t own = room_for_step(plan, standing_beside(input, plan));
  const int64_t least = input.least_room_bytes;
  return own == 0 || (least > 0 && least < own) ? least : own;
}

}  // namespace

int64_t start_of_threads(const std::vector<StagePrediction>& stages, int64_t replicas) {
  int64_t others = 0;  // all but the first and the last
  for (const StagePrediction& stage : stages) others += replicas * stage.step.before_bytes;
  others -= stages.front().step.before_bytes + stages.back().step.before_bytes;
  return stages.front().whole_bytes + others + stages.back().start_bytes;
}

size_t TriedCut::largest() const {
  return static_cast<size_t>(std::max_element(needs.begin(), needs.end()) - needs.begin());
}

StageSearch::StageSearch(const FitInput& input, const RunConfig& config, const Plan& plan,
                         const ModelBlocks& blocks, CutBudget& budget)
    : plan_(plan),
      budget_(budget),
      room_(room_of(input, plan)),
      least_(least_bytes(blocks, plan)),
      options_(options_of(plan, room_)),
      predictor_(
          plan, blocks, [&input, &config] { return input.make_task(config); }, *input.dataset) {}

TriedCut StageSearch::tried(const PipelineCut& cut) {
  TriedCut result{.cut = cut, .stages = predictor_.of(cut), .needs = {}};
  const bool is_cpu = plan_.device.device == "cpu";  // the CPU makes the whole model
  const int64_t ranks = sharers(plan_);
  for (const StagePrediction& stage : result.stages) {
    const int64_t start = is_cpu && ranks == 1 ? stage.start_bytes : 0;
    result.needs.push_back(std::max(stage.step.peak_bytes, start));
    result.fits = result.fits && tanren::fits(result.needs.back(), room_);
  }
  if (is_cpu && room_ > 0) {
    result.start_bytes = ranks > 1 ? start_of_threads(result.stages, plan_.parallel.data_size())
                                   : result.stages.front().whole_bytes;
    result.start_fits = tanren::fits(result.start_bytes, ranks * room_);
  }
  result.fits = result.fits && result.start_fits;
  return result;
}

// The result of a cut. No value if its dry run throws, because such a cut cannot be offered.
std::optional<TriedCut> StageSearch::offered(const PipelineCut& cut) {
  try {
    return tried(cut);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<TriedCut> StageSearch::fastest() {
  CutOptions options = options_;
  for (; budget_.cuts > 0; --budget_.cuts) {
    auto cut = cut_balanced(least_, options);
    // cut_balanced counts fixed bytes once per sample, so a cut may fit that it excludes.
    if (!cut && options.limit_bytes > 0) {
      options.limit_bytes = 0;
      cut = cut_balanced(least_, options);
    }
    if (!cut) return std::nullopt;
    auto result = offered(*cut);
    if (!result) {
      options.ruled_out.push_back(*cut);
      if (options.ruled_out.size() == kMostErrors) return std::nullopt;
      continue;
    }
    if (result->fits) return result;
    if (!result->start_fits) return std::nullopt;  // another cut's is about the same
    for (size_t stage = 0; stage < result->needs.size(); ++stage) {
      if (tanren::fits(result->needs[stage], room_)) continue;
      const size_t begin = stage == 0 ? 0 : cut->at(stage - 1);
      const size_t end = stage == cut->size() ? least_.blocks.size() : cut->at(stage);
      options.too_large.push_back({stage, begin, end});
    }
  }
  return std::nullopt;
}

std::optional<TriedCut> StageSearch::smallest() {
  CutOptions options = options_;
  while (options.ruled_out.size() < kMostErrors) {
    const auto cut = cut_smallest(least_, options);
    if (!cut) break;
    if (auto result = offered(*cut)) return result;
    options.ruled_out.push_back(*cut);
  }
  return std::nullopt;
}

}  // namespace tanren
