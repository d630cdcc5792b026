#include "tanren/config/sections/objectives.h"

#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/problems.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tanren {

void fields(FieldList& add, ObjectiveOptions& o) {
  add("every", &o.every,
      "Batches per update of the objective (2: on every second batch), ≥ 1; unset: the task's. "
      "Must be 1 for the task's first objective, whose updates are the run's steps.");
  add("weights", &o.weights,
      "Factors of the terms in the objective's loss, such as {real = 1.0, fake = 0.5}; a term that "
      "is not listed keeps the task's. The loss of an evaluation has the same factors. --set also "
      "takes objectives.NAME.weights.TERM.");
}

namespace {

// Puts `prefix` before each key of the three sections that a problem names.
std::string with_prefix(std::string problem, const std::string& prefix) {
  for (const std::string_view section : {"optimizer.", "schedule.", "clip."}) {
    for (size_t at = 0; (at = problem.find(section, at)) != std::string::npos;
         at += section.size()) {
      if (at > 0 && problem[at - 1] != ' ') continue;
      problem.insert(at, prefix);
      at += prefix.size();
    }
  }
  return problem;
}

// Checks the objective's sections as if they were the run's.
void check_sections(Problems& p, const RunConfig& config, const std::string& prefix,
                    const ObjectiveOptions& own) {
  RunConfig alone = config;
  alone.objectives.clear();
  alone.optimizer = own.optimizer;
  alone.schedule = own.schedule;
  alone.clip = own.clip;
  Problems of_own;
  for (const std::string& key : p.changed) {
    if (key.starts_with(prefix)) of_own.changed.insert(key.substr(prefix.size()));
  }
  check_optimizer(of_own, alone);
  check_schedule(of_own, alone);
  check_clip(of_own, alone.clip);
  for (const std::string& problem : of_own.found) {
    // A problem that the run's section has, too, is reported only there.
    if (std::find(p.found.begin(), p.found.end(), problem) != p.found.end()) continue;
    p.check(false, with_prefix(problem, prefix));
  }
  for (const auto& [key, because] : of_own.unused_keys) {
    const bool is_own = config.asked.count(prefix + because) > 0;
    p.unused_keys.push_back({prefix + key, is_own ? prefix + because : because});
  }
}

}  // namespace

void check_objectives(Problems& p, const RunConfig& config) {
  for (const auto& [name, own] : config.objectives) {
    const std::string prefix = "objectives." + name + ".";
    p.check(objective_prefix(prefix + "every") == prefix,
            fmt::format("objectives has \"{}\"; an objective that a config names has letters, "
                        "digits, _ and - in its name; rename it in the task",
                        name));
    if (own.every) p.count(prefix + "every", *own.every, 1);
    for (const auto& [term, weight] : own.weights) {
      p.check(std::isfinite(weight), fmt::format("{}weights has {} for {}; it must be finite",
                                                 prefix, to_text(weight), term));
    }
    check_sections(p, config, prefix, own);
  }
}

}  // namespace tanren
