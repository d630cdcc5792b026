// [batch]: the samples of an update and of a microstep.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

struct BatchOptions {
  std::string global_batch = "32";  // samples per step over all ranks, or "epoch"
  int64_t microbatch = 0;           // samples per microstep; 0: the whole share of a rank
};

}  // namespace tanren
