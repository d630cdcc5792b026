#include "tanren/forecast/smaller_models.h"

#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tanren {

namespace {

void halve(std::vector<int64_t>& widths) {
  for (int64_t& width : widths) width = std::max<int64_t>(width / 2, 1);
}

}  // namespace

std::vector<std::pair<std::string, RunConfig>> smaller_models(const RunConfig& config) {
  std::vector<std::pair<std::string, RunConfig>> smaller;
  const ModelOptions& model = config.model;
  const bool has_weights = !model.init_from.empty() || !model.from_hf.empty();
  if (has_weights || !config.run.fork_from.empty()) return smaller;  // the weights fix the size
  const ModelKind* kind = model_kind(model.kind);
  for (const Keys& family : kind == nullptr ? std::vector<Keys>() : kind->families) {
    auto own = std::find(family.begin(), family.end(), model.size);
    if (own == family.end()) continue;
    for (++own; own != family.end(); ++own) {
      smaller.emplace_back("model.size = \"" + *own + "\"", config).second.model.size = *own;
    }
    return smaller;
  }
  constexpr int kHalvings = 8;
  RunConfig narrower = config;
  for (int i = 0; i < kHalvings; ++i) {
    ModelOptions& o = narrower.model;
    o.hidden_size /= 2;
    o.intermediate_size /= 2;
    if (o.hidden_size > 0 && o.hidden_size % std::max<int64_t>(o.num_heads, 1) == 0) {
      smaller.emplace_back(fmt::format("model.hidden_size = {}", o.hidden_size), narrower);
    }
    if (kind == nullptr || kind->widths.empty()) continue;
    std::vector<int64_t>& widths = kind->widths == "hidden" ? o.hidden : o.channels;
    halve(widths);
    smaller.emplace_back(fmt::format("model.{} = [{}]", kind->widths, fmt::join(widths, ", ")),
                         narrower);
  }
  return smaller;
}

}  // namespace tanren
