#include "tanren/config/problems.h"

#include "tanren/base/names.h"

namespace tanren {

void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known,
                 const std::set<std::string>& changed) {
  if (o.kind.empty()) {
    p.check(false, "model.kind is missing; one of " + join(known));
  } else {
    p.one_of("model.kind", o.kind, known);
  }
  p.sizes("model.hidden", o.hidden);
  p.sizes("model.channels", o.channels);
  p.check(o.kind != "convnet" || !o.channels.empty(),
          "model.channels is empty; a convnet needs a stage");
  p.one_of("model.norm", o.norm, {"group", "batch", "none"});
  p.one_of("model.activation", o.activation, {"relu", "gelu", "tanh"});
  p.one_of("model.loss", o.loss, {"cross_entropy", "bce", "mse", "l1"});
  p.within("model.dropout", o.dropout, 0, 1, false);
  p.within("model.label_smoothing", o.label_smoothing, 0, 1, false);
  p.check(o.label_smoothing == 0 || o.loss == "cross_entropy",
          "model.label_smoothing needs model.loss = \"cross_entropy\", not \"" + o.loss + "\"");
  p.within("model.outputs", static_cast<double>(o.outputs), 0, kAbsurdWidth, false);
  // A registered kind may read any of them.
  if (o.kind == "mlp") {
    p.unused(changed, "model.", {"channels", "norm", "options"}, "model.kind", o.kind);
  }
  if (o.kind == "convnet") {
    p.unused(changed, "model.", {"hidden", "options"}, "model.kind", o.kind);
  }
}

}  // namespace tanren
