#include "tanren/optimizer/schedule.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <vector>

namespace tanren {

namespace {

// The position of an update in the run: `now` updates were applied before it. `warmup` and `total`
// are the updates of the warm-up and of the whole run.
struct Point {
  double now = 0, warmup = 0, total = 0;

  // Share of the time after the warm-up that has passed, in [0, 1].
  double progress() const {
    return std::clamp((now - warmup) / std::max(1.0, total - warmup), 0.0, 1.0);
  }
};

// The part of the decay that remains after a share `done` of its time: 1 → 0.
double left(const std::string& shape, double done) {
  if (shape == "linear") return 1 - done;
  if (shape == "1-sqrt") return 1 - std::sqrt(done);
  return 0.5 * (1 + std::cos(std::numbers::pi * done));
}

double above(double floor, double share) { return floor + (1 - floor) * share; }

double linear(const ScheduleOptions& o, const Point& p) {
  return above(o.final_fraction, left("linear", p.progress()));
}

double cosine(const ScheduleOptions& o, const Point& p) {
  return above(o.final_fraction, left("cosine", p.progress()));
}

double polynomial(const ScheduleOptions& o, const Point& p) {
  return above(o.final_fraction, std::pow(1 - p.progress(), o.power));
}

// `cycles` cosines, each cycle_growth times as long as the one before; together they fill the run.
double cosine_with_restarts(const ScheduleOptions& o, const Point& p) {
  if (p.progress() >= 1) return o.final_fraction;
  const auto cycles = static_cast<double>(std::max<int64_t>(1, o.cycles));
  const double growth = o.cycle_growth;
  const double length = std::max(1.0, p.total - p.warmup);
  // In units of the first cycle. Multiplying before dividing makes a boundary exact.
  const double units = growth == 1 ? cycles : (std::pow(growth, cycles) - 1) / (growth - 1);
  const double place = (p.now - p.warmup) * units / length;
  double cycle = growth == 1 ? place : std::log1p(place * (growth - 1)) / std::log(growth);
  if (std::abs(cycle - std::round(cycle)) < 1e-9) cycle = std::round(cycle);
  const double index = std::floor(cycle);
  if (growth == 1) return above(o.final_fraction, left("cosine", cycle - index));
  const double begin = (std::pow(growth, index) - 1) / (growth - 1);
  const double done = std::clamp((place - begin) / std::pow(growth, index), 0.0, 1.0);
  return above(o.final_fraction, left("cosine", done));
}

double inverse_sqrt(const ScheduleOptions& o, const Point& p) {
  const double timescale = o.timescale > 0 ? static_cast<double>(o.timescale)
                           : p.warmup > 0  ? p.warmup
                                           : 10000.0;
  return 1 / std::sqrt((p.now - p.warmup) / timescale + 1);
}

double step(const ScheduleOptions& o, const Point& p) {
  const auto size = static_cast<double>(std::max<int64_t>(1, o.step_size));
  return std::pow(o.factor, std::floor((p.now - p.warmup) / size));
}

double multi_step(const ScheduleOptions& o, const Point& p) {
  const auto passed = std::count_if(o.milestones.begin(), o.milestones.end(),
                                    [&](int64_t m) { return static_cast<double>(m) <= p.now; });
  return std::pow(o.factor, static_cast<double>(passed));
}

// As torch's OneCycleLR with two phases: the peak and the last rate belong to whole updates.
double one_cycle(const ScheduleOptions& o, const Point& p) {
  const double first = 1 / o.div_factor, last = first / o.final_div_factor;
  const double end = std::max(p.total - 1, 0.0);
  const double top = std::clamp(o.warmup_fraction * p.total - 1, 0.0, end);
  if (p.now >= end && end > 0) return last;
  if (p.now < top) return first + (1 - first) * (1 - left(o.shape, p.now / top));
  if (end <= top) return 1;
  return last + (1 - last) * left(o.shape, (p.now - top) / (end - top));
}

double warmup_stable_decay(const ScheduleOptions& o, const Point& p) {
  const double tenth = std::max(1.0, std::floor(p.total / 10));
  const double decay = o.decay_steps > 0 ? static_cast<double>(o.decay_steps) : tenth;
  const double begin = std::max(p.warmup, p.total - decay);
  if (p.now < begin) return 1;
  const double done = std::clamp((p.now - begin) / std::max(1.0, p.total - begin), 0.0, 1.0);
  return above(o.final_fraction, left(o.shape, done));
}

double full(const ScheduleOptions&, const Point&) { return 1; }

struct Kind {
  const char* name;
  double (*share)(const ScheduleOptions&, const Point&);
};

constexpr Kind kKinds[] = {
    {"constant", full},
    {"linear", linear},
    {"cosine", cosine},
    {"cosine_with_restarts", cosine_with_restarts},
    {"polynomial", polynomial},
    {"inverse_sqrt", inverse_sqrt},
    {"step", step},
    {"multi_step", multi_step},
    {"one_cycle", one_cycle},
    {"warmup_stable_decay", warmup_stable_decay},
    {"reduce_on_plateau", full},
};

const Kind& kind_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind;
    names.emplace_back(kind.name);
  }
  const std::string near = nearest(name, names);
  throw ConfigError("[schedule] kind '" + name + "' is unknown; " +
                    (near.empty() ? "there are " + join(names) : "did you mean '" + near + "'?"));
}

}  // namespace

double learning_rate(const ScheduleOptions& options, double peak, int64_t step,
                     int64_t total_steps) {
  const Kind& kind = kind_of(options.kind);
  Point point{static_cast<double>(step), static_cast<double>(options.warmup_steps),
              static_cast<double>(total_steps)};
  if (kind.share == one_cycle) {
    point.warmup = 0;
  } else if (point.now < point.warmup) {
    return peak * (point.now + 1) / point.warmup;
  }
  return peak * kind.share(options, point);
}

PlanLine schedule_line(const Plan& plan, size_t index, Source source) {
  const ObjectivePlan& objective = plan.objectives.at(index);
  const ScheduleOptions& schedule = objective.schedule;
  const int64_t total = objective.total_steps;
  const auto rate = [&](int64_t step) {
    return fmt::format("{:.4g}",
                       learning_rate(schedule, objective.optimizer.learning_rate, step, total));
  };
  std::string rates = "update 1: " + rate(0);
  const auto add = [&](const std::string& what, int64_t update) {
    rates += fmt::format(", {} ({}): {}", what, to_text(update), rate(update - 1));
  };
  const bool warms = schedule.warmup_steps > 1 && schedule.warmup_steps < total;
  if (warms && schedule.kind != "one_cycle") add("end of the warm-up", schedule.warmup_steps);
  if (total > 2) add("half-way", (total + 1) / 2);
  if (total > 1) add("last", total);
  if (reads_evaluations(schedule)) {
    rates += fmt::format("; × {} once {} ({}) has not improved in more than {} evaluations",
                         to_text(schedule.factor), schedule.metric, schedule.mode,
                         to_text(schedule.patience));
  }
  if (objective.every > 1) {
    rates += fmt::format("; its lengths count the objective's own updates, one in {} batches",
                         to_text(objective.every));
  }
  const std::string key = index == 0 ? "" : "objectives." + objective.name + ".";
  return {key + "schedule", schedule.kind, source, rates};
}

}  // namespace tanren
