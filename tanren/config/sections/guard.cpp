#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, GuardOptions& o) {
  add("nan_loss", &o.nan_loss, Identity::free,
      "A non-finite loss: stop (exit 1) or skip the update.");
  add("nan_gradient", &o.nan_gradient, Identity::free,
      "A non-finite gradient that is no fp16 overflow: stop or skip.");
  add("max_skips", &o.max_skips, Identity::free,
      "Stop after so many skips in a row that are no overflow, ≥ 1.");
  add("spike_z", &o.spike_z, Identity::free,
      "Report a loss or gradient norm this many standard deviations above its running mean; 0: "
      "never.");
  add("spike_window", &o.spike_window, Identity::free,
      "Updates that the running mean spans, and that come before the first report, ≥ 2.");
  add("growth_steps", &o.growth_steps, Identity::free,
      "Steps before the first check for tensors and graphs that are never freed; 0: never.");
}

void check_guard(Problems& p, const GuardOptions& o) {
  p.one_of("guard.nan_loss", o.nan_loss, {"stop", "skip"});
  p.one_of("guard.nan_gradient", o.nan_gradient, {"stop", "skip"});
  p.count("guard.max_skips", o.max_skips, 1);
  p.within("guard.spike_z", o.spike_z, 0, 1e6, true);
  p.count("guard.spike_window", o.spike_window, 2);
  if (o.spike_z == 0) p.unused("guard.", {"spike_window"}, "guard.spike_z", "0");
  p.count("guard.growth_steps", o.growth_steps, 0);
}

}  // namespace tanren
