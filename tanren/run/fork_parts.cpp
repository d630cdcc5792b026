#include "tanren/run/fork_parts.h"

#include "tanren/base/counted.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/config/metric_mode.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

namespace tanren {

namespace {

std::string path_of(const ObjectivePlan& objective) {
  return objective.phase + "." + objective.name;
}

const ScheduleOptions& schedule_of(const RunConfig& config, const std::string& objective) {
  const auto own = config.objectives.find(objective);
  return own == config.objectives.end() ? config.schedule : own->second.schedule;
}

bool is_adam(const std::string& kind) { return kind == "adam" || kind == "adamw"; }

// Why the state of optimizer `before` cannot be used by optimizer `now`; empty: it can, for
// parameters that have some.
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
  if (before.adamw_parameters != now.adamw_parameters) return "another optimizer.adamw_parameters";
  return "";
}

// The names of the checkpoint's objectives, each with its updates.
std::map<std::string, int64_t> objectives_there(const Snapshot& saved) {
  std::map<std::string, int64_t> found;
  constexpr std::string_view kStart = "objective.", kEnd = ".step";
  for (const auto& [key, value] : saved.run.values) {
    if (!key.starts_with(kStart) || !key.ends_with(kEnd)) continue;
    found[key.substr(kStart.size(), key.size() - kStart.size() - kEnd.size())] =
        std::get<int64_t>(value);
  }
  return found;
}

// The parameters of an objective that have state in the checkpoint, beside a copy of the weight.
std::set<std::string> with_state(const Snapshot& saved, const std::string& path) {
  std::set<std::string> names;
  const std::string start = path + ".";
  for (const StateSlice& slice : saved.slices) {
    if (slice.whole.starts_with(start)) names.insert(slice.whole.substr(start.size()));
  }
  if (!saved.slices.empty()) return names;
  for (const auto& [name, tensor] : saved.optimizer.tensors) {
    if (!name.starts_with(start) || name.ends_with(".master_weight")) continue;
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

// The report on the state that one objective's optimizer takes.
struct OptimizerText {
  std::string text;
  int64_t taken = 0, trained = 0;
};

// Why some of the `trained` ones have no state in `stored`.
std::string others_text(const ForkLook& look, const std::vector<std::string>& trained,
                        const std::set<std::string>& stored) {
  std::set<std::string> elsewhere;
  for (const auto& [path, steps] : objectives_there(look.saved)) {
    elsewhere.merge(with_state(look.saved, path));
  }
  int64_t moved = 0, others = 0;
  for (const std::string& name : trained) {
    if (stored.count(name) > 0) continue;
    ++others;
    moved += elsewhere.count(name) > 0 ? 1 : 0;
  }
  if (moved == 0) return "the others were not trained there";
  if (moved == others) return "another objective trained the others there";
  return fmt::format("another objective trained {} of the others there, none the rest", moved);
}

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
  if (told.taken < told.trained) told.text += ", " + others_text(look, trained, stored);
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

// Why the other run's evaluations cannot be compared with those here; empty: they can.
std::string why_evaluations_begin_anew(const ForkLook& look) {
  if (!has_evaluation(look.now.data)) return "there are no evaluation data here";
  if (!has_evaluation(look.before.data)) return "there were no evaluation data there";
  const std::string fact = look.other_fact("data.eval");
  if (!fact.empty()) return "the evaluation data are others than there: " + fact;
  for (const KeyChange& change : look.changes) {
    const std::string& key = change.key;
    const bool is_other = key == "model.loss" || key == "model.label_smoothing" ||
                          key == "model.options" || key == "average.kind" ||
                          key == "average.evaluate" || key == "average.buffers" ||
                          key == "data.split" || key.starts_with("data.eval.") ||
                          (key.starts_with("data.train.") && look.now.data.split > 0) ||
                          (key.starts_with("objectives.") && key.ends_with(".weights"));
    if (is_other) return "they measure something else: another " + key;
  }
  return "";
}

// The line for the first objective with a plateau on both sides: the scale there, or 1 if there is
// none.
std::optional<PlanLine> plateau_line(const ForkLook& look, const TakenParts& parts) {
  for (const auto& [path, taken] : parts.objectives) {
    if (!taken.plateau_scale) continue;
    const State there = part_below(look.saved.run, "objective." + path + ".schedule");
    const double scale = there.values.count("scale") > 0 ? value_of<double>(there, "scale") : 1.0;
    const std::string anew = why_evaluations_begin_anew(look);
    const std::string why = anew.empty() ? "another metric or mode" : anew;
    return PlanLine{"fork_plateau", taken.plateau ? "taken" : "in part", Source::planned,
                    fmt::format("the rate is {} of its peak, as there{}", short_text(scale, 4),
                                taken.plateau ? "" : "; the best value begins anew: " + why)};
  }
  return std::nullopt;
}

// The line for objectives that do not continue with the checkpoint's count.
std::optional<PlanLine> steps_line(const ForkLook& look, const TakenParts& parts) {
  const auto there = objectives_there(look.saved);
  std::vector<std::string> counts, reasons;
  for (const ObjectivePlan& objective : look.prepared.plan.objectives) {
    const int64_t here = parts.steps.at(path_of(objective));
    const auto found = there.find(path_of(objective));
    if (found != there.end() && found->second == here) continue;
    counts.push_back(fmt::format("{} {}", objective.name, to_text(here)));
    reasons.push_back(
        found == there.end()
            ? fmt::format("the checkpoint has no {}, which begins as if it had been in "
                          "turn every {}",
                          objective.name, counted(objective.every, "update"))
            : fmt::format("{} made {} there, and is in turn every {} here", objective.name,
                          to_text(found->second), to_text(objective.every)));
  }
  if (counts.empty()) return std::nullopt;
  return PlanLine{"fork_steps", join(counts), Source::planned, join(reasons, "; ")};
}

PlanLine evaluations_line(const ForkLook& look, const TakenParts& parts) {
  std::string reason =
      parts.evaluations ? "its evaluations count here" : why_evaluations_begin_anew(look);
  if (look.now.checkpoint.best > 0) {
    reason += "; checkpoint.best begins anew, as the best so far stay with their run";
  }
  return {"fork_evaluations", parts.evaluations ? "taken" : "anew", Source::planned, reason};
}

std::string changed_text(const ForkLook& look) {
  constexpr int64_t kMostShown = 40;
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

std::string ForkLook::other_fact(const std::string& part) const {
  for (const auto& [name, value] : data_now) {
    if (!name.ends_with(" of " + part)) continue;
    for (const auto& [before_name, old] : data_before) {
      if (before_name == name && old != value) return name;
    }
  }
  return "";
}

std::string why_data_begin_anew(const ForkLook& look) {
  const std::string fact = look.other_fact("data.train");
  if (!fact.empty()) return "other data: " + fact;
  for (const char* key : {"run.seed", "data.shuffle"}) {
    if (look.differs(key)) return std::string("another ") + key;
  }
  return "";
}

int64_t first_step(const ForkLook& look) {
  const auto there = objectives_there(look.saved);
  const auto own = there.find(path_of(look.prepared.plan.objectives.front()));
  if (own != there.end()) return own->second;
  int64_t most = 0;  // assumes that one objective had its turn at every batch
  for (const auto& [path, steps] : there) most = std::max(most, steps);
  return most;
}

namespace {

// How often the task itself has the objective in turn.
int64_t own_every(const Task& task, const ObjectivePlan& objective) {
  for (const PhaseSpec& phase : task.phases) {
    for (const ObjectiveSpec& spec : phase.objectives) {
      if (phase.name == objective.phase && spec.name == objective.name) return spec.every;
    }
  }
  return 1;
}

// The updates that the objective has made at this step of the run, as its schedule counts them
// here.
int64_t steps_of(const ForkLook& look, const ObjectivePlan& objective) {
  const auto there = objectives_there(look.saved);
  const auto found = there.find(path_of(objective));
  const int64_t every = std::max<int64_t>(objective.every, 1);
  if (found == there.end()) return first_step(look) / every;
  const auto own = look.before.objectives.find(objective.name);
  const int64_t task_every = own_every(look.prepared.task, objective);
  const int64_t before =
      own == look.before.objectives.end() ? task_every : own->second.every.value_or(task_every);
  return before == every ? found->second : found->second * before / every;
}

}  // namespace

TakenParts parts_that_fit(const ForkLook& look) {
  TakenParts parts;
  parts.position = why_data_begin_anew(look).empty();
  parts.random = !look.differs("run.seed");
  parts.flags = !look.differs("model.freeze") && !look.differs("model.unfreeze");
  parts.evaluations = why_evaluations_begin_anew(look).empty();
  for (const ObjectivePlan& objective : look.prepared.plan.objectives) {
    const std::string path = path_of(objective);
    parts.steps[path] = steps_of(look, objective);
    if (look.saved.run.values.count("objective." + path + ".step") == 0) continue;
    const ScheduleOptions& before = schedule_of(look.before, objective.name);
    const ScheduleOptions& now = schedule_of(look.now, objective.name);
    TakenObjective& taken = parts.objectives[path];
    taken.optimizer =
        why_not(optimizer_of(look.before, objective.name), optimizer_of(look.now, objective.name))
            .empty();
    taken.average = parts.flags && look.now.average.kind != "none" &&
                    look.before.average.kind == look.now.average.kind;
    taken.plateau_scale = reads_evaluations(before) && reads_evaluations(now);
    taken.plateau =
        taken.plateau_scale && parts.evaluations && before.metric == now.metric &&
        lower_is_better(before.metric, before.mode) == lower_is_better(now.metric, now.mode);
  }
  return parts;
}

std::vector<PlanLine> fork_lines(const ForkLook& look, const TakenParts& parts, int64_t step) {
  const Plan& plan = look.prepared.plan;
  std::vector<PlanLine> lines;
  lines.push_back(
      {"fork_from", "step " + to_text(step), Source::asked,
       fmt::format("{}: {} of the model; steps and schedule go on from there{}",
                   look.checkpoint.string(), counted(look.saved.model.tensors.size(), "tensor"),
                   changed_text(look))});
  if (const auto line = fork_table_line(look)) lines.push_back(*line);
  if (const auto line = steps_line(look, parts)) lines.push_back(*line);
  lines.push_back(optimizer_line(look, parts, step));
  if (const auto line = plateau_line(look, parts)) lines.push_back(*line);
  lines.push_back(data_line(look, parts));
  if (const auto line = fork_split_line(look)) lines.push_back(*line);
  if (plan.precision.scaling == Scaling::dynamic) lines.push_back(scale_line(look));
  if (plan.average.kind != Averaging::none) lines.push_back(average_line(look, parts));
  if (evaluations_decide(look.now)) lines.push_back(evaluations_line(look, parts));
  return lines;
}

}  // namespace tanren
