#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/metric_mode.h"
#include "tanren/config/problems.h"

#include <algorithm>

namespace tanren {

namespace {

// A metric that steers the run must be measured during the run, and its direction must be known.
void check_steering(Problems& p, const RunConfig& config, const std::string& section,
                    const std::string& switch_key, const std::string& metric,
                    const std::string& mode) {
  const std::string needs = section + switch_key + " needs evaluations while training; ";
  if (config.data.eval.kind.empty()) {
    p.check(false, needs + "add [data.eval] and set evaluate.every");
  } else {
    p.check(config.evaluate.every > 0, needs + "set evaluate.every");
  }
  const auto known = measured_values(config.evaluate);
  if (std::find(known.begin(), known.end(), metric) == known.end()) {
    const auto near = nearest(metric, known);
    p.check(false, section + "metric \"" + metric + "\" is not measured; one of " + join(known) +
                       (near.empty() ? "" : " (nearest: " + near + ")") +
                       ", or add it to evaluate.metrics");
  } else {
    p.check(mode != "auto" || lower_is_better(metric, mode).has_value(),
            section + "mode \"auto\" does not know whether a low " + metric +
                " is good; set it to min or max");
  }
}

void check_early_stop(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  const auto& o = config.early_stop;
  p.count("early_stop.patience", o.patience, 0);
  p.count("early_stop.start", o.start, 0);
  p.not_negative("early_stop.min_delta", o.min_delta);
  p.one_of("early_stop.mode", o.mode, {"auto", "min", "max"});
  if (o.patience == 0) {
    p.unused(changed, "early_stop.", {"metric", "mode", "min_delta", "start"},
             "early_stop.patience", "0");
  } else if (o.patience > 0) {
    check_steering(p, config, "early_stop.", "patience", o.metric, o.mode);
  }
}

void check_best(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  const auto& o = config.checkpoint;
  p.count("checkpoint.best", o.best, 0);
  p.one_of("checkpoint.mode", o.mode, {"auto", "min", "max"});
  if (o.best == 0) {
    p.unused(changed, "checkpoint.", {"metric", "mode"}, "checkpoint.best", "0");
  } else if (o.best > 0) {
    check_steering(p, config, "checkpoint.", "best", o.metric, o.mode);
  }
}

void check_average(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  const auto& o = config.average;
  p.one_of("average.kind", o.kind, {"none", "ema", "swa"});
  p.within("average.decay", o.decay, 0, 1, false);
  p.count("average.every", o.every, 1);
  p.not_negative("average.learning_rate", o.learning_rate);
  p.check(o.learning_rate < 1e6,
          "average.learning_rate is " + to_text(o.learning_rate) + "; it must lie below 1e6");
  p.one_of("average.buffers", o.buffers, {"auto", "average", "copy", "estimate"});
  p.count("average.estimate_batches", o.estimate_batches, 0);
  int64_t steps = 0;
  double share = 0;
  const bool fine = o.start == "auto" || (reads_as(o.start, steps) && steps >= 0) ||
                    (reads_as(o.start, share) && share > 0 && share < 1);
  p.check(fine, "average.start is \"" + o.start +
                    "\"; give a number of steps, a share of the run in (0, 1), or \"auto\"");
  p.check(!reads_as(o.start, steps) || !config.run.steps || steps < *config.run.steps,
          "average.start " + o.start + " lies past the run's end; lower it");
  if (o.kind == "none") {
    p.unused(changed, "average.",
             {"decay", "decay_warmup", "every", "start", "learning_rate", "buffers",
              "estimate_batches", "evaluate"},
             "average.kind", o.kind);
  }
  if (o.kind == "ema") p.unused(changed, "average.", {"learning_rate"}, "average.kind", o.kind);
  if (o.kind == "swa") {
    p.unused(changed, "average.", {"decay", "decay_warmup"}, "average.kind", o.kind);
  }
  if (o.buffers == "average" || o.buffers == "copy" || (o.buffers == "auto" && o.kind == "ema")) {
    p.unused(changed, "average.", {"estimate_batches"}, "average.buffers", o.buffers);
  }
}

}  // namespace

void check_selection(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  check_best(p, config, changed);
  check_early_stop(p, config, changed);
  check_average(p, config, changed);
  const auto& from = config.evaluate.checkpoint;
  int64_t step = 0;
  p.check(from == "latest" || from == "best" || from == "exported" ||
              (from.rfind("step-", 0) == 0 && reads_as(from.substr(5), step) && step >= 0),
          "evaluate.checkpoint is \"" + from + "\"; give latest, best, step-<n> or exported");
}

}  // namespace tanren
