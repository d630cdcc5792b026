#include "tanren/run/fork_parts.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <algorithm>
#include <string_view>

namespace tanren {

namespace {

// Whether one of the facts about the data `part` ("data.train") differs; facts that either side
// lacks are skipped. Returns its name.
std::string other_fact(const ForkLook& look, const std::string& part) {
  for (const auto& [name, value] : look.data_now) {
    if (!name.ends_with(" of " + part)) continue;
    for (const auto& [before, old] : look.data_before) {
      if (before == name && old != value) return name;
    }
  }
  return "";
}

const ScheduleOptions& schedule_of(const RunConfig& config, const std::string& objective) {
  const auto own = config.objectives.find(objective);
  return own == config.objectives.end() ? config.schedule : own->second.schedule;
}

bool is_adam(const std::string& kind) { return kind == "adam" || kind == "adamw"; }

// Why no state of the optimizer `before` serves the optimizer `now`; empty: it does, for parameters
// that have some.
std::string why_not(const OptimizerOptions& before, const OptimizerOptions& now) {
  const bool is_one_kind = before.kind == now.kind || (is_adam(before.kind) && is_adam(now.kind));
  if (!is_one_kind) return before.kind + " there, " + now.kind + " here";
  if (const OptimizerKind* kind = optimizer_kind(now.kind)) {
    const Keys there = kept_moments(*kind, with_defaults(before));
    const Keys here = kept_moments(*kind, with_defaults(now));
    if (there != here) {
      const auto shown = [](const Keys& keys) { return keys.empty() ? "nothing" : join(keys); };
      return fmt::format("it kept {} there and keeps {} here", shown(there), shown(here));
    }
  }
  const bool unpacks =
      before.state == "8bit" && (now.state != "8bit" || before.fp32_state != now.fp32_state);
  if (unpacks) return "8-bit state there, other state here";
  if (before.adamw_parameters != now.adamw_parameters) return "another optimizer.adamw_parameters";
  return "";
}

// The parameters of an objective that have state in the checkpoint.
std::set<std::string> with_state(const Snapshot& saved, const std::string& path) {
  std::set<std::string> names;
  const std::string start = path + ".";
  for (const StateSlice& slice : saved.slices) {
    if (slice.whole.starts_with(start)) names.insert(slice.whole.substr(start.size()));
  }
  if (!saved.slices.empty()) return names;
  for (const auto& [name, tensor] : saved.optimizer.tensors) {
    if (!name.starts_with(start)) continue;
    names.insert(name.substr(start.size(), name.rfind('.') - start.size()));
  }
  return names;
}

// The parameters of the objective that are trained when the new run begins, after `step` updates.
std::vector<std::string> trained_ones(const ForkLook& look, const TakenParts& parts,
                                      const ObjectivePlan& objective, int64_t step) {
  std::vector<std::string> names;
  const Task& task = look.prepared.task;
  std::set<std::string> unfrozen;
  for (const Unfreeze& due : look.prepared.plan.freeze.unfreezes) {
    if (due.step <= step) unfrozen.insert(due.parameters.begin(), due.parameters.end());
  }
  for (const PhaseSpec& phase : task.phases) {
    for (const ObjectiveSpec& spec : phase.objectives) {
      if (phase.name != objective.phase || spec.name != objective.name) continue;
      for (const auto& item : task.module->named_parameters()) {
        const bool is_trained =
            parts.flags ? value_of<bool>(look.saved.run, "requires_grad." + item.key())
                        : item.value().requires_grad() || unfrozen.count(item.key()) > 0;
        if (is_trained && matches_any(spec.parameters, item.key())) names.push_back(item.key());
      }
    }
  }
  return names;
}

std::string path_of(const ObjectivePlan& objective) {
  return objective.phase + "." + objective.name;
}

// What of one objective's optimizer is taken.
struct OptimizerText {
  std::string text;
  int64_t taken = 0, trained = 0;
};

OptimizerText optimizer_text(const ForkLook& look, const TakenParts& parts,
                             const ObjectivePlan& objective, int64_t step) {
  const auto trained = trained_ones(look, parts, objective, step);
  OptimizerText told{.trained = std::ssize(trained)};
  if (parts.objectives.count(path_of(objective)) == 0) {
    told.text = "begins anew, as the checkpoint has no such objective";
    return told;
  }
  const OptimizerOptions& now = optimizer_of(look.now, objective.name);
  const std::string misfit = why_not(optimizer_of(look.before, objective.name), now);
  const auto stored = with_state(look.saved, path_of(objective));
  if (!misfit.empty()) {
    told.text = "begins anew: " + misfit;
    return told;
  }
  const OptimizerKind* const kind = optimizer_kind(now.kind);
  const bool keeps_none = kind != nullptr && kind->scalars.empty() && !kind->is_factored &&
                          kept_moments(*kind, with_defaults(now)).empty();
  if (keeps_none) {
    told.taken = told.trained;
    told.text = now.kind + " keeps no state";
    return told;
  }
  told.taken = std::count_if(trained.begin(), trained.end(),
                             [&](const std::string& name) { return stored.count(name) > 0; });
  told.text = fmt::format("state of {} of {} trained tensors", told.taken, told.trained);
  if (told.taken < told.trained) told.text += ", the others were not trained there";
  return told;
}

PlanLine optimizer_line(const ForkLook& look, const TakenParts& parts, int64_t step) {
  std::string reason;
  int64_t taken = 0, trained = 0;
  const auto& objectives = look.prepared.plan.objectives;
  for (const ObjectivePlan& objective : objectives) {
    const OptimizerText told = optimizer_text(look, parts, objective, step);
    const std::string who = objectives.size() > 1 ? objective.name + " " : "";
    reason += (reason.empty() ? "" : "; ") + who + told.text;
    taken += told.taken;
    trained += told.trained;
  }
  const char* value = taken == 0 ? "anew" : taken < trained ? "in part" : "taken";
  return {"fork_optimizer", value, Source::planned, reason};
}

PlanLine data_line(const ForkLook& look, const TakenParts& parts) {
  if (!parts.position) {
    return {"fork_data", "anew", Source::planned,
            "from the first epoch: " + why_data_begin_anew(look)};
  }
  return {"fork_data", "taken", Source::planned,
          fmt::format("epoch {}, {} of its samples are consumed",
                      to_text(value_of<int64_t>(look.saved.run, "epoch") + 1),
                      to_text(value_of<int64_t>(look.saved.run, "consumed")))};
}

// The scaler decides by the same two values.
PlanLine scale_line(const ForkLook& look) {
  const ObjectivePlan& first = look.prepared.plan.objectives.front();
  const PrecisionPlan& precision = look.prepared.plan.precision;
  const State there = part_below(look.saved.run, "objective." + path_of(first) + ".scaler");
  const bool is_known = there.values.count("scaling") > 0 && there.values.count("first_scale") > 0;
  const double begins = precision.find_initial_scale ? 0.0 : precision.initial_scale;
  const bool fits = is_known && value_of<std::string>(there, "scaling") == "dynamic" &&
                    value_of<double>(there, "first_scale") == begins;
  if (!fits) {
    return {"fork_loss_scale", "anew", Source::planned,
            "the scaling or its first value is another"};
  }
  return {"fork_loss_scale", "taken", Source::planned,
          to_text(value_of<double>(there, "scale")) + " there"};
}

PlanLine average_line(const ForkLook& look, const TakenParts& parts) {
  const bool any = std::any_of(parts.objectives.begin(), parts.objectives.end(),
                               [](const auto& one) { return one.second.average; });
  if (any) return {"fork_average", "taken", Source::planned, look.now.average.kind + " goes on"};
  const std::string& there = look.before.average.kind;
  return {"fork_average", "anew", Source::planned,
          there != look.now.average.kind ? there + " there, " + look.now.average.kind + " here"
                                         : "other parameters are trained"};
}

PlanLine evaluations_line(const ForkLook& look, const TakenParts& parts) {
  std::string reason = parts.evaluations ? "its evaluations count here"
                                         : "the evaluation data are others than there";
  if (look.now.checkpoint.best > 0) {
    reason += "; checkpoint.best begins anew, as the best so far stay with their run";
  }
  return {"fork_evaluations", parts.evaluations ? "taken" : "anew", Source::planned, reason};
}

std::string changed_text(const ForkLook& look) {
  constexpr int64_t kMostShown = 6;
  std::vector<std::string> lines;
  for (const auto& [key, before, now] : look.changes) {
    if (key == "run.fork_from" || key.ends_with(".init_from")) continue;
    lines.push_back(key + " " + before + " → " + now);
  }
  if (lines.empty()) return "";
  const int64_t more = std::ssize(lines) - kMostShown;
  if (more > 0) {
    lines.resize(kMostShown);
    lines.push_back(fmt::format("and {} more", more));
  }
  return "; changed: " + join(lines);
}

}  // namespace

bool ForkLook::differs(const std::string& key) const {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const KeyChange& change) { return change.key == key; });
}

std::string why_data_begin_anew(const ForkLook& look) {
  const std::string fact = other_fact(look, "data.train");
  if (!fact.empty()) return "other data: " + fact;
  for (const char* key : {"run.seed", "data.shuffle"}) {
    if (look.differs(key)) return std::string("another ") + key;
  }
  return "";
}

TakenParts parts_that_fit(const ForkLook& look) {
  TakenParts parts;
  parts.position = why_data_begin_anew(look).empty();
  parts.random = !look.differs("run.seed");
  parts.flags = !look.differs("model.freeze") && !look.differs("model.unfreeze");
  const bool has_both = !look.before.data.eval.kind.empty() && !look.now.data.eval.kind.empty();
  parts.evaluations = has_both && other_fact(look, "data.eval").empty();
  for (const ObjectivePlan& objective : look.prepared.plan.objectives) {
    const std::string path = path_of(objective);
    if (look.saved.run.values.count("objective." + path + ".step") == 0) continue;
    const ScheduleOptions& before = schedule_of(look.before, objective.name);
    const ScheduleOptions& now = schedule_of(look.now, objective.name);
    TakenObjective& taken = parts.objectives[path];
    taken.optimizer =
        why_not(optimizer_of(look.before, objective.name), optimizer_of(look.now, objective.name))
            .empty();
    taken.average = parts.flags && look.now.average.kind != "none" &&
                    look.before.average.kind == look.now.average.kind;
    taken.plateau = parts.evaluations && reads_evaluations(before) && reads_evaluations(now) &&
                    before.metric == now.metric && before.mode == now.mode;
  }
  return parts;
}

std::vector<PlanLine> fork_lines(const ForkLook& look, const TakenParts& parts, int64_t step) {
  const Plan& plan = look.prepared.plan;
  std::vector<PlanLine> lines;
  lines.push_back(
      {"fork_from", "step " + to_text(step), Source::asked,
       fmt::format("{}: {} tensors of the model; steps and schedule go on from there{}",
                   look.checkpoint.string(), look.saved.model.tensors.size(), changed_text(look))});
  lines.push_back(optimizer_line(look, parts, step));
  lines.push_back(data_line(look, parts));
  if (plan.precision.scaling == Scaling::dynamic) lines.push_back(scale_line(look));
  if (plan.average.kind != Averaging::none) lines.push_back(average_line(look, parts));
  if (evaluations_decide(look.now)) lines.push_back(evaluations_line(look, parts));
  return lines;
}

}  // namespace tanren
