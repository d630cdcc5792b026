// [clip]: limits of the gradients.
#pragma once

namespace tanren {

struct ClipOptions {
  double norm = 0.0;   // largest global norm of an objective's gradients; 0: off
  double value = 0.0;  // then every element is clamped to [-value, value]; 0: off
};

}  // namespace tanren
