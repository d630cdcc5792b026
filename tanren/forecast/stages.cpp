#include "tanren/forecast/stages.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace tanren {

namespace {

using Holders = std::set<int64_t>;

std::string path_before(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

// Indexed like ModelBlocks::weights and ::buffers.
struct HeldParts {
  std::vector<Holders> weights, buffers;
};

HeldParts held_parts(const ModelBlocks& model, const std::vector<size_t>& begins) {
  HeldParts held{std::vector<Holders>(model.weights.size()),
                 std::vector<Holders>(model.buffers.size())};
  const auto stages = static_cast<int64_t>(begins.size());
  int64_t stage = 0;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    while (stage + 1 < stages && i >= begins[static_cast<size_t>(stage) + 1]) ++stage;
    const BlockCost& block = model.blocks[i];
    for (const size_t weight : block.weights) held.weights[weight].insert(stage);
    for (const size_t buffer : block.buffers) held.buffers[buffer].insert(stage);
    for (const size_t weight : block.weights_before) {
      for (int64_t later = stage; later < stages; ++later) held.weights[weight].insert(later);
    }
  }
  for (const size_t buffer : model.buffers_outside) {
    for (int64_t any = 0; any < stages; ++any) held.buffers[buffer].insert(any);
  }
  return held;
}

// The holders of each name of `named`; names of one tensor have the same. `names` are those of
// the profile, each tensor once.
std::map<std::string, Holders> by_name(const torch::OrderedDict<std::string, at::Tensor>& named,
                                       const std::vector<std::string>& names,
                                       const std::vector<Holders>& parts) {
  std::map<std::string, const Holders*> known;
  for (size_t i = 0; i < names.size(); ++i) known[names[i]] = &parts[i];
  std::map<const c10::TensorImpl*, const Holders*> of_tensor;
  std::map<std::string, Holders> holders;
  for (const auto& item : named) {
    const auto found = known.find(item.key());
    const c10::TensorImpl* tensor = item.value().unsafeGetTensorImpl();
    if (found != known.end()) of_tensor.emplace(tensor, found->second);
    const auto same = of_tensor.find(tensor);
    holders[item.key()] = same == of_tensor.end() ? Holders{} : *same->second;
  }
  return holders;
}

}  // namespace

std::vector<StagePlan> stage_plans(const ModelBlocks& model, const PipelineCut& cut,
                                   const torch::nn::Module& module) {
  std::vector<size_t> begins = {0};
  begins.insert(begins.end(), cut.begin(), cut.end());
  StagePlan plan;
  for (const BlockCost& block : model.blocks) plan.blocks.blocks.push_back(block.name);
  for (const size_t begin : begins) plan.first_blocks.push_back(model.blocks.at(begin).name);

  const HeldParts held = held_parts(model, begins);
  std::vector<std::string> weights;
  for (const WeightCost& weight : model.weights) weights.push_back(weight.name);
  std::map<std::string, Holders> beside;  // by module: the stages that hold a parameter of it
  for (auto& [name, holders] : by_name(module.named_parameters(), weights, held.weights)) {
    if (holders.empty()) holders.insert(0);
    beside[path_before(name)].insert(holders.begin(), holders.end());
    plan.holders[name].assign(holders.begin(), holders.end());
  }
  std::set<std::string> written;
  for (const size_t buffer : model.buffers_written) written.insert(model.buffers[buffer]);
  for (auto& [name, holders] : by_name(module.named_buffers(), model.buffers, held.buffers)) {
    if (holders.empty()) holders = beside[path_before(name)];
    if (holders.size() > 1 && written.count(name) > 0) {
      throw ConfigError(
          fmt::format("[pipeline] the forward changes the buffer {} in {} stages, and each would "
                      "change its own; let one block alone use it, or cut the model so that one "
                      "stage has all its uses",
                      name, to_text(std::ssize(holders))));
    }
    if (!holders.empty()) plan.holders[name].assign(holders.begin(), holders.end());
  }

  std::vector<StagePlan> plans;
  for (size_t stage = 0; stage < begins.size(); ++stage) {
    StagePlan& own = plans.emplace_back(plan);
    own.stage = static_cast<int64_t>(stage);
    own.blocks.begin = begins[stage];
    own.blocks.end = stage + 1 < begins.size() ? begins[stage + 1] : model.blocks.size();
  }
  return plans;
}

}  // namespace tanren
