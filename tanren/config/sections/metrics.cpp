#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, MetricsOptions& o) {
  add("console_every", &o.console_every, Identity::free,
      "Steps between console lines, ≥ 1; the log has every one.");
  add("jsonl", &o.jsonl, Identity::free, "Write log.jsonl, one line per attempt.");
  add("tensorboard", &o.tensorboard, Identity::free,
      "Write TensorBoard event files under tensorboard/.");
  add("tensorboard_every", &o.tensorboard_every, Identity::free,
      "Applied steps between points of TensorBoard's curves, ≥ 1; speeds are means over these "
      "steps.");
  add("images_every", &o.images_every, Identity::free,
      "Applied steps between pictures of input, target and output, in images/ and TensorBoard: of "
      "the first 4 samples of data.eval, or of the step's batch if there is no data.eval. 0: "
      "never.");
}

void check_metrics(Problems& p, const MetricsOptions& o) {
  p.count("metrics.console_every", o.console_every, 1);
  p.count("metrics.tensorboard_every", o.tensorboard_every, 1);
  p.count("metrics.images_every", o.images_every, 0);
}

}  // namespace tanren
