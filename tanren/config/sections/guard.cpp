#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, GuardOptions& o) {
  add("nan_loss", &o.nan_loss,
      {"A non-finite loss: stop (exit 1) or skip the update.", Identity::free});
  add("nan_gradient", &o.nan_gradient,
      {"A non-finite gradient that is no fp16 overflow: stop or skip.", Identity::free});
  add("max_skips", &o.max_skips,
      {"Stop after so many skips in a row that are no overflow, ≥ 1.", Identity::free});
  add("spike_z", &o.spike_z,
      {"Tell of a loss or gradient norm so many deviations above its running mean; 0: never.",
       Identity::free});
  add("spike_window", &o.spike_window,
      {"Updates that this mean looks back on, and waits for at first, ≥ 2.", Identity::free});
  add("growth_steps", &o.growth_steps,
      {"Steps before the first look for tensors and graphs that are never freed; 0: never.",
       Identity::free});
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
