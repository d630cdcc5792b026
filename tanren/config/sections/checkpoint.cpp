#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, CheckpointOptions& o) {
  add("every", &o.every, Identity::free,
      "Applied steps between checkpoints; 0: only at the end or when stopped.");
  add("keep", &o.keep, Identity::free, "Newest checkpoints that stay, ≥ 1.");
  add("best", &o.best, Identity::free,
      "Number of best checkpoints that stay in addition; an evaluation among the best writes one. "
      "0: none.");
  add("metric", &o.metric, Identity::free,
      "Metric that ranks the checkpoints: loss, or one of evaluate.metrics.");
  add("mode", &o.mode, Identity::free, "Direction of improvement: auto (by the metric), min, max.");
}

void check_checkpoint(Problems& p, const CheckpointOptions& o) {
  p.count("checkpoint.every", o.every, 0);
  p.count("checkpoint.keep", o.keep, 1);
}

void check_best(Problems& p, const RunConfig& config) {
  const auto& o = config.checkpoint;
  p.count("checkpoint.best", o.best, 0);
  p.one_of("checkpoint.mode", o.mode, {"auto", "min", "max"});
  if (o.best == 0) {
    p.unused("checkpoint.", {"metric", "mode"}, "checkpoint.best", "0");
  } else if (o.best > 0) {
    check_steering(p, config, "checkpoint.", "best", o.metric, o.mode);
  }
}

}  // namespace tanren
