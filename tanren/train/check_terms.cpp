#include "tanren/train/check_terms.h"

#include "tanren/base/dry_scope.h"
#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace tanren {

namespace {

std::string step_text(const Phase& phase) {
  return "[train] step " + to_text(phase.objectives.front().step + 1) + ": ";
}

bool wants(const ObjectiveSpec& spec, const std::string& term) {
  if (spec.terms.empty()) return true;
  return std::any_of(spec.terms.begin(), spec.terms.end(), [&](const WeightedTerm& weighted) {
    return weighted.name == term && weighted.weight != 0;
  });
}

void check_scalar(const Phase& phase, const Term& term) {
  if (!term.sum.defined()) {
    throw ConfigError(step_text(phase) + "term " + term.name +
                      " of forward has no sum; set it, to 0 where there is none");
  }
  if (term.sum.dim() != 0) {
    throw ConfigError(step_text(phase) + "term " + term.name + " of forward is no scalar (" +
                      to_text(term.sum.dim()) +
                      " dimensions); return its sum over the samples (it is divided once, by the "
                      "global count)");
  }
}

bool is_partly_frozen(const Objective& objective) {
  return objective.parameters.size() != objective.all.size();
}

}  // namespace

void check_terms(const Phase& phase, const Terms& terms) {
  if (terms.empty()) {
    throw ConfigError(step_text(phase) + "forward of phase " + phase.spec.name +
                      " returned no terms, so that nothing would be trained; return the sum of a "
                      "loss as a term");
  }
  for (const Term& term : terms) check_scalar(phase, term);
  for (const Objective& objective : phase.objectives) {
    const ObjectiveSpec& spec = objective.spec;
    for (const WeightedTerm& wanted : spec.terms) {
      const bool found = std::any_of(terms.begin(), terms.end(),
                                     [&](const Term& term) { return term.name == wanted.name; });
      if (found) continue;
      std::vector<std::string> names;
      for (const Term& term : terms) names.push_back(term.name);
      throw ConfigError(step_text(phase) + "objective " + spec.name + " wants term \"" +
                        wanted.name + "\"; forward returned " + join(names) +
                        "; give both the same names");
    }
    for (const Term& term : terms) {
      if (!wants(spec, term.name) || term.sum.is_floating_point()) continue;
      throw ConfigError(step_text(phase) + "term " + term.name + " of objective " + spec.name +
                        " is " + c10::toString(term.sum.scalar_type()) +
                        ", which has no gradient; return a floating sum");
    }
  }
}

void check_graphs(const Phase& phase, const LossMeter& losses, const std::vector<double>& sums) {
  const auto& names = losses.names();
  const bool dry = !losses.sums().empty() && is_dry(losses.sums().front());
  for (int64_t microstep = 0; !dry && microstep < losses.microsteps(); ++microstep) {
    const size_t first = static_cast<size_t>(microstep) * names.size();
    for (const Objective& objective : phase.objectives) {
      bool any = false;
      for (size_t i = 0; i < names.size(); ++i) {
        any = any || (wants(objective.spec, names[i]) && losses.has_graph(first + i));
      }
      for (size_t i = 0; i < names.size(); ++i) {
        const double sum = sums[first + i];
        if (losses.has_graph(first + i) || !wants(objective.spec, names[i])) continue;
        if (sum == 0 || !std::isfinite(sum) || (any && is_partly_frozen(objective))) continue;
        throw ConfigError(
            step_text(phase) + "term " + names[i] + " of objective " + objective.spec.name +
            " is " + to_text(sum) +
            " and has no gradient: it was detached, or made of constants or without gradients; "
            "return it with its graph, or, if it is only to be told, list the others as the "
            "objective's terms");
      }
    }
  }
}

void check_grown(Phase& phase, const torch::nn::Module& module) {
  if (phase.tensors.empty()) return;
  std::vector<std::string> grown;
  const auto look = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (std::find(phase.tensors.begin(), phase.tensors.end(), name) == phase.tensors.end()) {
        grown.push_back(name);
      }
    }
  };
  look(module.named_parameters().keys());
  look(module.named_buffers().keys());
  phase.tensors.clear();
  if (grown.empty()) return;
  throw ConfigError(step_text(phase) + "the module had no " + join(grown) +
                    " before its first forward, so that nothing would train them and no checkpoint "
                    "could be loaded; register them in its constructor");
}

}  // namespace tanren
