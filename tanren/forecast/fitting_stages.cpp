#include "tanren/forecast/fitting_stages.h"

#include "tanren/base/generators.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/forecast/block_profile.h"
#include "tanren/forecast/stage_search.h"

#include <cstdint>
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

// The largest peak of the fastest cut into so many stages that fits; 0: none does.
int64_t largest_in(const FitInput& input, RunConfig config, int64_t stages,
                   const ModelBlocks& blocks) {
  config.parallel.pipeline = stages;
  try {
    const Plan plan = input.plan(config);
    StageSearch search(input, config, plan, blocks);
    const auto found = search.fastest();
    return found ? found->needs[found->largest()] : 0;
  } catch (const std::exception&) {  // the run cannot have so many, or none
    return 0;
  }
}

}  // namespace

std::string fitting_stages(const FitInput& input, const Tried& least) {
  const bool share = least.plan.device.device == "cpu" && least.config.parallel.ranks == "threads";
  if (share || least.plan.memory.limit_bytes <= 0) return "";
  std::vector<RunConfig> configs = {input.config};
  if (input.config.asked.count("memory.recompute") == 0) {
    configs.push_back(input.config);
    configs.back().memory.recompute = {"*"};
  }
  try {
    const ModelBlocks blocks = blocks_of_least(input, least);
    for (const int64_t stages : {2, 4, 8}) {
      for (const RunConfig& config : configs) {
        const int64_t bytes = largest_in(input, config, stages, blocks);
        if (bytes == 0) continue;
        const bool recomputes = &config != &configs.front();
        return fmt::format(
            "parallel.pipeline = {}{} on as many ranks with this limit each needs at most {} in "
            "each",
            stages, recomputes ? " with memory.recompute = [\"*\"]" : "", size_text(bytes));
      }
    }
  } catch (const std::exception&) {  // the blocks are not known
  }
  return "";
}

}  // namespace tanren
