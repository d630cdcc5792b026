// What a fork's plan says where the new run reads its table in another way than the checkpoint's.
#include "tanren/base/names.h"
#include "tanren/run/fork_parts.h"

#include <algorithm>

namespace tanren {

std::optional<PlanLine> fork_table_line(const ForkLook& look) {
  if (look.now.data.train.kind != "csv" || look.before.data.train.kind != "csv")
    return std::nullopt;
  const auto value_of_fact = [](const Facts& facts, const std::string& name) {
    const auto found = std::find_if(facts.begin(), facts.end(),
                                    [&](const auto& fact) { return fact.first == name; });
    return found == facts.end() ? std::string() : found->second;
  };
  std::vector<std::string> others;
  for (const char* what : {"columns and what was measured", "class names"}) {
    const std::string name = std::string(what) + " of data.train";
    const bool differs =
        value_of_fact(look.data_before, name) != value_of_fact(look.data_now, name);
    if (differs) others.emplace_back(what);
  }
  if (look.data_before.empty() || others.empty()) return std::nullopt;
  return PlanLine{"fork_table", "another", Source::planned,
                  join(others) +
                      " are not those there, so inputs or classes mean something else "
                      "to the weights that are taken"};
}

}  // namespace tanren
