#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, EarlyStopOptions& o) {
  add("patience", &o.patience, Identity::free,
      "Evaluations without improvement that end the run; 0: off.");
  add("metric", &o.metric, Identity::free,
      "Metric that must improve: loss, or one of evaluate.metrics.");
  add("mode", &o.mode, Identity::free, "Direction of improvement: auto (by the metric), min, max.");
  add("min_delta", &o.min_delta, Identity::free,
      "A value counts as better if it is better by more than this, ≥ 0.");
  add("start", &o.start, Identity::free, "Evaluations before this step do not count, ≥ 0.");
}

void check_early_stop(Problems& p, const RunConfig& config) {
  const auto& o = config.early_stop;
  p.count("early_stop.patience", o.patience, 0);
  p.count("early_stop.start", o.start, 0);
  p.not_negative("early_stop.min_delta", o.min_delta);
  p.one_of("early_stop.mode", o.mode, {"auto", "min", "max"});
  if (o.patience == 0) {
    p.unused("early_stop.", {"metric", "mode", "min_delta", "start"}, "early_stop.patience", "0");
  } else if (o.patience > 0) {
    check_steering(p, config, "early_stop.", "patience", o.metric, o.mode);
  }
}

}  // namespace tanren
