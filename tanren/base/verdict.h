// Verdict: what becomes of one update of one objective, and why. A value, agreed over ranks.
#pragma once

#include <string_view>

namespace tanren {

enum class Action { apply, skip, halt };
// overflow: finite loss, non-finite gradients, loss scale above its floor (fp16's normal event).
enum class Cause { none, overflow, nan_loss, nan_gradient };

struct Verdict {
  Action action = Action::apply;
  Cause cause = Cause::none;
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
  }
  return "?";
}

}  // namespace tanren
