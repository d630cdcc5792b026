#include "tanren/model/check_task.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/core/Tensor.h>

#include <set>
#include <string>

namespace tanren {

void check_task(const Task& task, const std::string& what) {
  if (task.module == nullptr) {
    throw ConfigError(what + ": its task has no module; set task.module");
  }
  if (task.phases.empty()) {
    throw ConfigError(what + ": its task has no phases; push a PhaseSpec with a forward");
  }
  for (const PhaseSpec& phase : task.phases) {
    const std::string of = what + ": phase " + phase.name + " of its task has no ";
    if (!phase.forward) throw ConfigError(of + "forward; set phase.forward");
    if (phase.objectives.empty()) {
      throw ConfigError(of + "objectives; keep the one that a PhaseSpec begins with");
    }
    for (const ObjectiveSpec& objective : phase.objectives) {
      std::set<std::string> terms;
      for (const WeightedTerm& term : objective.terms) {
        if (terms.insert(term.name).second) continue;
        throw ConfigError(
            fmt::format("{}: objective {} of its task lists term {} twice; list it "
                        "once, with one weight",
                        what, objective.name, term.name));
      }
      if (objective.every >= 1) continue;
      throw ConfigError(
          fmt::format("{}: objective {} of its task has every = {}; it is in turn at "
                      "every so many batches, so take 1 or more",
                      what, objective.name, to_text(objective.every)));
    }
  }
  std::set<std::string> names;
  for (const PhaseSpec& phase : task.phases) {
    for (const ObjectiveSpec& objective : phase.objectives) {
      if (names.insert(objective.name).second) continue;
      throw ConfigError(
          fmt::format("{}: two objectives of its task are named {}; config, logs and "
                      "checkpoints tell them apart by name, so rename one",
                      what, objective.name));
    }
  }
  const ObjectiveSpec& first = task.phases.front().objectives.front();
  if (first.every != 1) {
    throw ConfigError(
        fmt::format("{}: objective {} is the first of its task and has every = {}; run.step counts "
                    "its updates, so set 1, or put another objective first",
                    what, first.name, to_text(first.every)));
  }
  for (const auto& item : task.module->named_parameters()) {
    if (!item.value().is_complex()) continue;
    throw ConfigError(
        fmt::format("{}: parameter {} is {}; train its real and imaginary parts "
                    "(at::view_as_real), and make it complex in forward (at::view_as_complex)",
                    what, item.key(), c10::toString(item.value().scalar_type())));
  }
  for (const auto& item : task.module->named_buffers()) {
    if (!item.value().is_complex()) continue;
    throw ConfigError(fmt::format(
        "{}: buffer {} is {}, which no checkpoint here holds; register at::view_as_real of it",
        what, item.key(), c10::toString(item.value().scalar_type())));
  }
}

}  // namespace tanren
