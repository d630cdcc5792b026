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

bool has_frozen(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
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
      if (!wants(spec, wanted.name)) continue;  // its weight is 0
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

void check_attached(const Phase& phase) {
  for (const Objective& objective : phase.objectives) {
    const int64_t index = objective.gradients.first_detached();
    if (index < 0) continue;
    throw ConfigError(step_text(phase) + "forward set the gradient of " +
                      objective.parameters[static_cast<size_t>(index)].name +
                      " to none or replaced it, and with it what the microbatches before it had "
                      "added; take torch::autograd::grad for gradients of its own");
  }
}

void check_graphs(const Phase& phase, const torch::nn::Module& module, const LossMeter& losses,
                  const std::vector<double>& sums) {
  const auto& names = losses.names();
  if (losses.sums().empty() || is_dry(losses.sums().front())) return;
  const size_t count = names.size() * static_cast<size_t>(losses.microsteps());
  for (const Objective& objective : phase.objectives) {
    // In the window: a microbatch may have nothing for a term but a constant.
    bool any = false;
    std::vector<bool> has_graph(names.size(), false);
    for (size_t i = 0; i < count; ++i) {
      const size_t term = i % names.size();
      if (!losses.has_graph(i) || !wants(objective.spec, names[term])) continue;
      any = has_graph[term] = true;
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string& name = names[i % names.size()];
      if (has_graph[i % names.size()] || !wants(objective.spec, name)) continue;
      if (sums[i] == 0 || !std::isfinite(sums[i]) || (any && has_frozen(module))) continue;
      throw ConfigError(
          step_text(phase) + "term " + name + " of objective " + objective.spec.name + " is " +
          to_text(sums[i]) +
          " and has no gradient: it was detached, or made of constants or without gradients; "
          "return it with its graph, or, if it is only to be told, list the others as the "
          "objective's terms");
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
