// [guard]: what follows a loss or gradient that is not finite, and what is reported as a spike.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

struct GuardOptions {
  std::string nan_loss = "stop";      // stop, skip
  std::string nan_gradient = "stop";  // stop, skip
  int64_t max_skips = 5;              // stop after this many skips in a row that are no overflow
  double spike_z = 6.0;               // deviations above the running mean that are logged; 0: off
  int64_t spike_window = 100;  // updates in mean and deviation; none is logged before that many
  int64_t growth_steps = 64;   // steps before the first check for tensors never freed; 0: off
};

}  // namespace tanren
