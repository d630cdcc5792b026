#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, PredictOptions& o) {
  add("scores", &o.scores, Identity::free,
      "What tanren predict and tanren eval --predictions write of each sample: best (the score of "
      "its label), all (that of every class).");
  add("broken", &o.broken, Identity::free,
      "What tanren predict does at a row or file that cannot be read: error, skip (its prediction "
      "is null, and the last line counts them).");
}

void check_predict(Problems& p, const PredictOptions& o) {
  p.one_of("predict.scores", o.scores, {"best", "all"});
  p.one_of("predict.broken", o.broken, {"error", "skip"});
}

}  // namespace tanren
