#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, ClipOptions& o) {
  add("norm", &o.norm,
      {"Largest global gradient norm of an update, ≥ 0; 0: no clipping.", Identity::on_request});
  add("value", &o.value,
      {"Largest absolute value of a gradient element, after clip.norm, ≥ 0; 0: no clipping.",
       Identity::on_request});
}

void check_clip(Problems& p, const ClipOptions& o) {
  p.not_negative("clip.norm", o.norm);
  p.not_negative("clip.value", o.value);
}

}  // namespace tanren
