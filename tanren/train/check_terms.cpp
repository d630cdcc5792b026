#include "tanren/train/check_terms.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace tanren {

namespace {

std::string step_text(const Phase& phase) {
  return fmt::format("[train] step {}: ", to_text(phase.objectives.front().step + 1));
}

bool wants(const Objective& objective, const std::string& term) {
  const auto& listed = objective.spec.terms;
  if (listed.empty()) return objective.weight_of(term) != 0;
  return std::any_of(listed.begin(), listed.end(), [&](const WeightedTerm& weighted) {
    return weighted.name == term && weighted.weight != 0;
  });
}

// The terms that forward must return. If the task lists terms for the objective: those with a
// weight other than 0. Otherwise: those that the config names.
std::vector<std::string> needed_terms(const Objective& objective) {
  std::vector<std::string> names;
  for (const WeightedTerm& listed : objective.spec.terms) {
    if (listed.weight != 0) names.push_back(listed.name);
  }
  if (!objective.spec.terms.empty()) return names;
  for (const auto& [name, weight] : objective.plan.weights) names.push_back(name);
  return names;
}

void check_scalar(const Phase& phase, const Term& term) {
  if (!term.sum.defined()) {
    throw ConfigError(step_text(phase) + "term " + term.name +
                      " of forward has no sum; set it, to 0 where there is none");
  }
  if (term.sum.dim() != 0) {
    throw ConfigError(
        fmt::format("{}term {} of forward is no scalar ({} dimensions); return its sum over the "
                    "samples (it is divided once, by the global count)",
                    step_text(phase), term.name, to_text(term.sum.dim())));
  }
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
    for (const std::string& wanted : needed_terms(objective)) {
      const bool found = std::any_of(terms.begin(), terms.end(),
                                     [&](const Term& term) { return term.name == wanted; });
      if (found) continue;
      std::vector<std::string> names;
      for (const Term& term : terms) names.push_back(term.name);
      throw ConfigError(fmt::format(
          "{}objective {} wants term \"{}\"; forward returned {}; give both the same names",
          step_text(phase), spec.name, wanted, join(names)));
    }
    if (std::none_of(terms.begin(), terms.end(),
                     [&](const Term& term) { return wants(objective, term.name); })) {
      throw ConfigError(fmt::format(
          "{}the weights of objective {} are all 0, so that nothing would be trained; give a term "
          "of objectives.{}.weights another one",
          step_text(phase), spec.name, spec.name));
    }
    for (const Term& term : terms) {
      if (!wants(objective, term.name) || term.sum.is_floating_point()) continue;
      throw ConfigError(fmt::format(
          "{}term {} of objective {} is {}, which has no gradient; return a floating sum",
          step_text(phase), term.name, spec.name, c10::toString(term.sum.scalar_type())));
    }
  }
}

void check_gradients_kept(const Phase& phase) {
  for (const Objective& objective : phase.objectives) {
    if (!objective.in_turn) continue;
    const auto change = objective.gradients.first_change();
    if (!change) continue;
    throw ConfigError(step_text(phase) + "forward changed the gradient of " +
                      objective.parameters[change->parameter].name +
                      (change->is_this_one ? "" : ", or of a parameter beside it in memory,") +
                      " (by a backward, by zero_grad or in place), and with it the sum of the "
                      "update's microbatches; take torch::autograd::grad for gradients of its own");
  }
}

bool has_frozen(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
}

void check_graphs(const Phase& phase, bool some_frozen, const Ranks& ranks,
                  const std::vector<PhaseTerm>& terms, const std::vector<double>& num_graphs,
                  const std::vector<double>& sums) {
  for (const Objective& objective : phase.objectives) {
    bool any = false;
    for (size_t i = 0; i < terms.size(); ++i) {
      any = any || (num_graphs[i] > 0 && wants(objective, terms[i].name));
    }
    for (size_t i = 0; i < terms.size(); ++i) {
      if (num_graphs[i] > 0 || !wants(objective, terms[i].name)) continue;
      if (sums[i] == 0 || !std::isfinite(sums[i]) || (any && some_frozen)) continue;
      settle(ranks.world().communicator());
      throw ConfigError(
          fmt::format("{}term {} of objective {} is {} and has no gradient: it was detached, or "
                      "made of constants or without gradients; return it with its graph, or, if it "
                      "is only to be told, list the others as the objective's terms",
                      step_text(phase), terms[i].name, objective.spec.name, to_text(sums[i])));
    }
  }
}

std::vector<std::string> names_of(const torch::nn::Module& module) {
  std::vector<std::string> names = module.named_parameters().keys();
  for (const auto& item : module.named_buffers()) names.push_back(item.key());
  return names;
}

void refuse_grown(const std::string& where, const torch::nn::Module& module,
                  const std::vector<std::string>& names) {
  std::vector<std::string> grown;
  for (const std::string& name : names_of(module)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) grown.push_back(name);
  }
  if (grown.empty()) return;
  throw ConfigError(where + "the module had no " + join(grown) +
                    " before its first forward, so that nothing would train them and no checkpoint "
                    "could be loaded; register them in its constructor");
}

void check_grown(Phase& phase, const torch::nn::Module& module) {
  if (phase.tensors.empty()) return;
  refuse_grown(step_text(phase), module, std::exchange(phase.tensors, {}));
}

}  // namespace tanren
