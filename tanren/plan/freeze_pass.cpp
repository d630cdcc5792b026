#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <functional>
#include <map>
#include <numeric>
#include <optional>

namespace tanren {

namespace {

struct Size {
  int64_t tensors = 0, elements = 0;

  void add(const ParameterFacts& parameter) {
    ++tensors;
    elements += std::accumulate(parameter.shape.begin(), parameter.shape.end(), int64_t{1},
                                std::multiplies<>());
  }
  std::string text() const {
    return to_text(tensors) + (tensors == 1 ? " tensor, " : " tensors, ") + to_text(elements) +
           (elements == 1 ? " parameter" : " parameters");
  }
};

using Names = std::vector<std::string>;  // of one tensor

// The names of each tensor, by its first name.
std::map<std::string, Names> names_of_tensors(const ModelProfile& profile) {
  std::map<std::string, Names> all;
  for (const auto& parameter : profile.parameters) {
    all[parameter.first.empty() ? parameter.name : parameter.first].push_back(parameter.name);
  }
  return all;
}

std::optional<int64_t> unfreeze_step(const ModelOptions& options, const Names& names) {
  std::optional<int64_t> first;
  for (const auto& table : options.unfreeze) {
    if (!matches_any(table.parameters, names)) continue;
    if (!first || *table.step < *first) first = table.step;
  }
  return first;
}

std::string patterns_at(const ModelOptions& options, int64_t step) {
  std::vector<std::string> all;
  for (const auto& table : options.unfreeze) {
    if (table.step == step) all.insert(all.end(), table.parameters.begin(), table.parameters.end());
  }
  return join(all);
}

void tell_frozen(const Request& request, const Size& by_pattern, const Size& by_model, Plan& plan) {
  const auto& profile = request.profile;
  if (by_pattern.tensors + by_model.tensors == 0) return;
  std::string reason;
  if (by_pattern.tensors > 0) {
    reason = fmt::format("{} of {} without gradient and optimizer state", by_pattern.text(),
                         to_text(profile.num_parameters));
  }
  if (by_model.tensors > 0) {
    reason += (reason.empty() ? "" : "; ") + by_model.text() + " frozen by the model itself";
  }
  if (!profile.still.empty()) {
    reason +=
        "; no statistics move and no dropout draws in " +
        join({profile.still.begin(),
              profile.still.begin() + std::min<std::ptrdiff_t>(4, std::ssize(profile.still))});
    if (profile.still.size() > 4)
      reason += fmt::format(" and {} more", to_text(std::ssize(profile.still) - 4));
  }
  plan.lines.push_back({"freeze", join(plan.model.freeze),
                        by_pattern.tensors > 0 ? Source::asked : Source::planned, reason});
}

}  // namespace

void plan_freeze(const Request& request, Plan& plan) {
  const auto& profile = request.profile;
  std::map<int64_t, Unfreeze> unfreezes;
  std::map<int64_t, Size> sizes;
  Size by_pattern, by_model;
  const auto tensors = names_of_tensors(profile);
  for (const auto& parameter : profile.parameters) {
    if (parameter.trained) continue;
    const Names& own = tensors.at(parameter.first.empty() ? parameter.name : parameter.first);
    const Names& leader = parameter.follows.empty() ? own : tensors.at(parameter.follows);
    const bool is_led =
        !parameter.follows.empty() && !matches_alone(plan.model.freeze, parameter.name, leader);
    const Names& led_by = is_led ? leader : own;
    const bool asked = matches_any(plan.model.freeze, led_by);
    (asked ? by_pattern : by_model).add(parameter);
    const auto step = asked ? unfreeze_step(plan.model, led_by) : std::nullopt;
    if (!step || *step == 0) continue;
    unfreezes[*step].step = *step;
    unfreezes[*step].parameters.push_back(parameter.name);
    sizes[*step].add(parameter);
  }
  tell_frozen(request, by_pattern, by_model, plan);
  int64_t trained = profile.num_trainable;
  for (auto& [step, unfreeze] : unfreezes) {
    trained += sizes[step].elements;
    const bool never = step >= plan.length.total_steps;
    plan.lines.push_back(
        {fmt::format("unfreeze@{}", to_text(step)), patterns_at(plan.model, step), Source::asked,
         never ? fmt::format("never: the run ends after {} steps", to_text(plan.length.total_steps))
               : fmt::format("{} more once {} steps are applied, their optimizer state from 0; "
                             "then {} of {} are trained",
                             sizes[step].text(), to_text(step), to_text(trained),
                             to_text(profile.num_parameters))});
    plan.freeze.unfreezes.push_back(std::move(unfreeze));
  }
}

}  // namespace tanren
