// Verdict: what is done with one update of one objective, and why. A value, equal on all ranks.
#pragma once

#include <string_view>

namespace tanren {

enum class Action { apply, skip, halt };
// overflow: finite loss, non-finite gradients, loss scale above its floor (fp16's normal event).
// spike: loss or gradient norm far above its running mean; reported, and the update is applied.
// nothing_counted: a count that divides one of the objective's terms is 0 in this batch; the skip
// does not count towards guard.max_skips.
// halt_beside: another objective of the same forward halts the run.
enum class Cause { none, overflow, nan_loss, nan_gradient, spike, nothing_counted, halt_beside };

struct Verdict {
  Action action = Action::apply;
  Cause cause = Cause::none;
  bool at_max_skips = false;  // a halt because guard.max_skips skips in a row were reached
};

// The value that was far above its mean in an applied update.
struct Spike {
  std::string_view what;  // "loss", "grad_norm"
  double value = 0;
  double mean = 0;  // running mean before this value
  double z = 0;     // deviations above the mean
};

constexpr std::string_view name(Action action) {
  switch (action) {
    case Action::apply: return "apply";
    case Action::skip: return "skip";
    case Action::halt: return "halt";
  }
  return "?";
}
constexpr std::string_view name(Cause cause) {
  switch (cause) {
    case Cause::none: return "none";
    case Cause::overflow: return "overflow";
    case Cause::nan_loss: return "non-finite loss";
    case Cause::nan_gradient: return "non-finite gradient";
    case Cause::spike: return "spike";
    case Cause::nothing_counted: return "nothing counted";
    case Cause::halt_beside: return "another objective halts";
  }
  return "?";
}

}  // namespace tanren
