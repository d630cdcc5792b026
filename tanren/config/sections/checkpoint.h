// [checkpoint]: when the state of the run is saved, and which saved states stay.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

struct CheckpointOptions {
  int64_t every = 0;            // steps between checkpoints; 0: only at the end and when stopped
  int64_t keep = 2;             // how many of the newest step folders stay
  int64_t best = 0;             // how many of the best stay, too
  std::string metric = "loss";  // ranks the best: loss, or one of evaluate.metrics
  std::string mode = "auto";    // auto (by the metric), min, max
};

}  // namespace tanren
