#include "tanren/forecast/fitting_stages.h"

#include "tanren/base/generators.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/forecast/block_profile.h"

#include <algorithm>
#include <exception>
#include <vector>

namespace tanren {

namespace {

ModelBlocks blocks_of_least(const FitInput& input, const Tried& least) {
  const TensorMap before = generator_states(at::kCPU);  // a dataset may draw
  std::vector<int64_t> indices = {0};
  if (input.dataset->size() > 1) indices.push_back(1);  // batch norm wants two values a channel
  const Collated some = collated(*input.dataset, indices);
  set_generator_states(at::kCPU, before);
  return block_profile(
      least.plan, [&] { return input.make_task(least.config); }, some.batch);
}

// The bytes of the largest stage; 0: so many stages do not fit, or cannot be.
int64_t largest_of(const ModelBlocks& blocks, int64_t stages, const Plan& plan, int64_t room) {
  CutOptions options{
      .stages = stages, .samples = plan.batch.microbatch, .in_flight = {}, .limit_bytes = room};
  for (int64_t stage = 0; stage < stages; ++stage) {
    options.in_flight.push_back(most_in_flight(
        pipeline_actions(plan.parallel.schedule, stage, stages, plan.batch.accumulation_steps)));
  }
  const auto cut = cut_balanced(blocks, options);
  if (!cut) return 0;
  int64_t largest = 0;
  for (const StageCost& cost : stage_costs(blocks, *cut, options)) {
    largest = std::max(largest, cost.bytes);
  }
  return largest;
}

}  // namespace

std::string fitting_stages(const FitInput& input, const Tried& least, int64_t room_bytes) {
  const bool share = least.plan.device.device == "cpu" && least.config.parallel.ranks == "threads";
  if (share || room_bytes <= 0) return "";
  try {
    const ModelBlocks blocks = blocks_of_least(input, least);
    for (const int64_t stages : {2, 4, 8}) {
      const int64_t bytes = largest_of(blocks, stages, least.plan, room_bytes);
      if (bytes == 0) continue;
      RunConfig config = least.config;
      config.parallel.pipeline = stages;
      input.plan(config);  // refuses what a run in stages cannot have
      return fmt::format(
          "parallel.pipeline = {} on as many ranks with this limit each needs {} in "
          "each for what its stage keeps",
          stages, size_text(bytes));
    }
  } catch (const std::exception&) {  // the blocks are not known
  }
  return "";
}

}  // namespace tanren
