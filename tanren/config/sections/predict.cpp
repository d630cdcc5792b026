#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, PredictOptions& o) {
  add("scores", &o.scores, Identity::free,
      "Scores that tanren predict and tanren eval --predictions write for each sample: best (that "
      "of its label), all (those of all classes).");
  add("broken", &o.broken, Identity::free,
      "Action of tanren predict on a row or file that cannot be read: error, skip (its prediction "
      "is null, and the last line counts them).");
}

void check_predict(Problems& p, const PredictOptions& o) {
  p.one_of("predict.scores", o.scores, {"best", "all"});
  p.one_of("predict.broken", o.broken, {"error", "skip"});
}

}  // namespace tanren
