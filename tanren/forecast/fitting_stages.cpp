#include "tanren/forecast/fitting_stages.h"

#include "tanren/base/generators.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/forecast/block_profile.h"
#include "tanren/forecast/stage_search.h"

#include <cstdint>
#include <exception>
#include <set>
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

// Text such as "parallel.pipeline = 2 … on 4 ranks with 1.2 GiB each needs at most 1.1 GiB in
// each" if the fastest cut into `stages` stages fits; empty otherwise.
std::string advice_in(const FitInput& input, RunConfig config, int64_t stages, bool recomputes,
                      const ModelBlocks& blocks, CutBudget& budget) {
  config.parallel.pipeline = stages;
  if (recomputes) config.memory.recompute = {"*"};
  try {
    const Plan plan = input.plan(config);
    StageSearch search(input, config, plan, blocks, budget);
    const auto found = search.fastest();
    if (!found) return "";
    return fmt::format("parallel.pipeline = {}{} on {} ranks with {} each needs at most {} in each",
                       stages, recomputes ? " with memory.recompute = [\"*\"]" : "",
                       plan.parallel.world_size, size_text(plan.memory.limit_bytes),
                       size_text(found->needs[found->largest()]));
  } catch (const std::exception&) {  // the run cannot have so many, or none
    return "";
  }
}

}  // namespace

std::string fitting_stages(const FitInput& input, const Tried& least) {
  const bool share = least.plan.device.device == "cpu" && least.config.parallel.ranks == "threads";
  if (share || least.plan.memory.limit_bytes <= 0) return "";
  std::set<int64_t> numbers = {2, 4, 8};  // of stages, which must divide the ranks
  const int64_t ranks = least.plan.parallel.world_size;
  if (ranks > 1 && ranks < 8) numbers.insert(ranks);
  try {
    const ModelBlocks blocks = blocks_of_least(input, least);
    CutBudget budget;
    for (const int64_t stages : numbers) {
      for (const bool recomputes : {false, true}) {
        if (recomputes && input.config.asked.count("memory.recompute") > 0) break;
        std::string advice = advice_in(input, input.config, stages, recomputes, blocks, budget);
        if (!advice.empty()) return advice;
      }
    }
  } catch (const std::exception&) {  // the blocks are not known
  }
  return "";
}

}  // namespace tanren
