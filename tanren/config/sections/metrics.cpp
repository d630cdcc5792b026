#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, MetricsOptions& o) {
  add("console_every", &o.console_every,
      {"Steps between console lines, ≥ 1; the log has every one.", Identity::free});
  add("jsonl", &o.jsonl, {"Write log.jsonl, one line per attempt.", Identity::free});
  add("tensorboard", &o.tensorboard,
      {"Write TensorBoard event files under tensorboard/.", Identity::free});
  add("tensorboard_every", &o.tensorboard_every,
      {"Applied steps between points of its curves, ≥ 1; speeds are means over them.",
       Identity::free});
}

void check_metrics(Problems& p, const MetricsOptions& o) {
  p.count("metrics.console_every", o.console_every, 1);
  p.count("metrics.tensorboard_every", o.tensorboard_every, 1);
}

}  // namespace tanren
