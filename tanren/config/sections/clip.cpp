#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, ClipOptions& o) {
  add("norm", &o.norm, Identity::on_request,
      "Largest global gradient norm of an update, ≥ 0; 0: no clipping.");
  add("value", &o.value, Identity::on_request,
      "Largest absolute value of a gradient element, after clip.norm, ≥ 0; 0: no clipping.");
}

void check_clip(Problems& p, const ClipOptions& o) {
  p.not_negative("clip.norm", o.norm);
  p.not_negative("clip.value", o.value);
}

}  // namespace tanren
