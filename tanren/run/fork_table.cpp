// What a fork's plan says where the new run reads columns or classes in another way than the
// checkpoint's.
#include "tanren/base/names.h"
#include "tanren/run/fork_parts.h"

#include <algorithm>

namespace tanren {

std::optional<PlanLine> fork_table_line(const ForkLook& look) {
  if (look.now.data.train.kind != look.before.data.train.kind) return std::nullopt;
  const auto value_of_fact = [](const Facts& facts, const std::string& name) {
    const auto found = std::find_if(facts.begin(), facts.end(),
                                    [&](const auto& fact) { return fact.first == name; });
    return found == facts.end() ? std::string() : found->second;
  };
  std::vector<std::string> others;
  for (const std::string what : {"columns", "columns and what was measured", "class names"}) {
    const std::string name = what + " of data.train";
    const std::string before = value_of_fact(look.data_before, name);
    const std::string now = value_of_fact(look.data_now, name);
    const bool is_new = what == "columns" && before.empty();  // older checkpoints do not have it
    if (before != now && !is_new) others.push_back(what);
  }
  if (look.data_before.empty() || others.empty()) return std::nullopt;
  return PlanLine{"fork_table", "another", Source::planned,
                  join(others) +
                      " are not those there, so inputs or classes mean something else "
                      "to the weights that are taken"};
}

}  // namespace tanren
