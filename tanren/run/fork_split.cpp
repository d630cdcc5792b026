#include "tanren/base/text.h"
#include "tanren/run/fork_parts.h"

#include <algorithm>

namespace tanren {

std::optional<PlanLine> fork_split_line(const ForkLook& look) {
  constexpr const char* kKey = "fork_split";
  const DataOptions &before = look.before.data, &now = look.now.data;
  if (!(now.split > 0) || !now.eval.kind.empty()) return std::nullopt;
  const std::string fact = now.split == before.split ? look.other_fact("data.eval") : "";
  const bool is_one_place = now.train.path == before.train.path;
  const bool is_within =
      now.split == before.split ? fact.empty() : now.split < before.split && is_one_place;
  if (is_within) {
    const auto known = std::find_if(look.lines_before.begin(), look.lines_before.end(),
                                    [&](const PlanLine& line) { return line.key == kKey; });
    return known == look.lines_before.end() ? std::nullopt : std::optional(*known);
  }
  const std::string why = !fact.empty()      ? "other data: " + fact
                          : before.split > 0 ? "data.split was " + to_text(before.split) + " there"
                                             : "there was no data.split there";
  const bool is_sure = fact.empty() && is_one_place;
  return PlanLine{kKey, is_sure ? "seen" : "may be seen", Source::planned,
                  fmt::format("evaluation {} rows that the weights were trained on: {}",
                              is_sure ? "has" : "may have", why)};
}

}  // namespace tanren
