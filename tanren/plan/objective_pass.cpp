#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <set>

namespace tanren {

namespace {

// The known names, and which of them is the nearest.
std::string known_names(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  return join(known) + (near.empty() ? "" : " (nearest: " + near + ")");
}

void check_names(const RunConfig& config, const std::vector<ObjectiveFacts>& objectives) {
  std::vector<std::string> known;
  known.reserve(objectives.size());
  for (const auto& facts : objectives) known.push_back(facts.name);
  for (const auto& [name, options] : config.objectives) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw ConfigError(
        fmt::format("[plan] objectives.{} names no objective of this task; name one of {}", name,
                    known_names(name, known)));
  }
}

void check_weights(const ObjectivePlan& plan, const ObjectiveFacts& facts) {
  if (facts.terms.empty()) return;  // the first step knows what forward returns
  for (const auto& [term, weight] : plan.weights) {
    if (std::find(facts.terms.begin(), facts.terms.end(), term) != facts.terms.end()) continue;
    throw ConfigError(
        fmt::format("[plan] objectives.{}.weights has the term \"{}\", which is none of this "
                    "objective; name one of {}",
                    plan.name, term, known_names(term, facts.terms)));
  }
  for (size_t i = 0; i < facts.terms.size(); ++i) {
    const auto own = plan.weights.find(facts.terms[i]);
    const double of_task = i < facts.weights.size() ? facts.weights[i] : 1;
    if ((own == plan.weights.end() ? of_task : own->second) != 0) return;
  }
  throw ConfigError(
      fmt::format("[plan] objectives.{}.weights are all 0, so that nothing would be "
                  "trained; give one of {} a weight",
                  plan.name, join(facts.terms)));
}

ObjectivePlan plan_of(const RunConfig& config, const ObjectiveFacts& facts, int64_t total_steps) {
  ObjectivePlan plan{.name = facts.name,
                     .phase = facts.phase,
                     .every = facts.every,
                     .weights = {},
                     .optimizer = with_defaults(optimizer_of(config, facts.name)),
                     .schedule = config.schedule,
                     .clip = config.clip};
  if (const auto own = config.objectives.find(facts.name); own != config.objectives.end()) {
    plan.every = own->second.every.value_or(facts.every);
    plan.weights = own->second.weights;
    plan.schedule = own->second.schedule;
    plan.clip = own->second.clip;
    const OptimizerOptions &run = config.optimizer, &mine = own->second.optimizer;
    plan.has_own_groups = mine.groups != run.groups;
    plan.has_own_layers =
        mine.layers != run.layers || (mine.layers.empty() && mine.layer_decay != run.layer_decay);
  }
  check_weights(plan, facts);
  // A task with an `every` below 1 is refused when its phases are made.
  plan.total_steps = total_steps / std::max<int64_t>(plan.every, 1);
  return plan;
}

// A program's config may not have been validated.
void check_turns(const RunConfig& config, const ObjectivePlan& objective, bool is_first) {
  const auto own = config.objectives.find(objective.name);
  if (own == config.objectives.end()) return;
  const int64_t every = own->second.every.value_or(1);
  if (every < 1) {
    throw ConfigError(fmt::format("[plan] objectives.{}.every is {}; it must be at least 1",
                                  objective.name, to_text(every)));
  }
  if (!is_first || every == 1) return;
  throw ConfigError(
      fmt::format("[plan] objectives.{}.every is {}, and {} is the first objective of its task: "
                  "run.step counts its updates; leave the key out, or put another objective first",
                  objective.name, to_text(every), objective.name));
}

void tell_length(const Request& request, const ObjectivePlan& objective, bool is_first,
                 Plan& plan) {
  if (!is_first && objective.total_steps == 0 && plan.length.total_steps > 0) {
    plan.lines.push_back({fmt::format("objectives.{}.every", objective.name),
                          to_text(objective.every), Source::asked,
                          "the run ends before its first turn: it is never trained"});
    return;
  }
  const int64_t warmup = objective.schedule.warmup_steps;
  if (warmup < objective.total_steps) return;
  if (is_first) {
    plan.lines.push_back(
        {"warmup_steps", to_text(warmup), Source::asked, "the run ends before its warm-up does"});
  } else if (warmup > 0) {
    const std::string key = fmt::format("objectives.{}.schedule.warmup_steps", objective.name);
    plan.lines.push_back({key, to_text(warmup), request.source(key),
                          fmt::format("the run ends before its warm-up does, after {} of its "
                                      "updates",
                                      to_text(objective.total_steps))});
  }
}

std::string weights_text(const std::map<std::string, double>& weights) {
  std::vector<std::string> texts;
  texts.reserve(weights.size());
  for (const auto& [term, weight] : weights) texts.push_back(term + " × " + to_text(weight));
  return join(texts);
}

}  // namespace

void plan_objectives(const Request& request, Plan& plan) {
  std::vector<ObjectiveFacts> objectives = request.profile.objectives;
  if (objectives.empty()) objectives.emplace_back();
  check_names(request.config, objectives);
  plan.objectives.clear();
  for (const auto& facts : objectives) {
    const bool is_first = plan.objectives.empty();
    plan.objectives.push_back(plan_of(request.config, facts, plan.length.total_steps));
    const ObjectivePlan& objective = plan.objectives.back();
    check_turns(request.config, objective, is_first);
    tell_length(request, objective, is_first, plan);
    if (objective.weights.empty()) continue;
    plan.lines.push_back({fmt::format("objectives.{}.weights", objective.name),
                          weights_text(objective.weights), Source::asked,
                          "in its loss, in place of the task's"});
  }
}

std::vector<const ParameterFacts*> parameters_of(const Request& request, size_t objective) {
  std::vector<const ParameterFacts*> own;
  const auto& objectives = request.profile.objectives;
  const bool has_all = objectives.empty() || objectives[objective].parameters.empty();
  std::set<std::string> names;
  if (!has_all) {
    const auto& parameters = objectives[objective].parameters;
    names.insert(parameters.begin(), parameters.end());
  }
  for (const auto& parameter : request.profile.parameters) {
    if (has_all || names.count(parameter.name) > 0) own.push_back(&parameter);
  }
  return own;
}

}  // namespace tanren
