// [average]: a second copy of the weights, averaged over steps.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

struct AverageOptions {
  std::string kind = "none";     // none, ema, swa
  double decay = 0.999;          // ema: average = decay × average + (1 - decay) × weights
  bool decay_warmup = true;      // ema: after t updates min(decay, (1 + t) / (10 + t))
  int64_t every = 1;             // applied steps between updates of the average
  std::string start = "auto";    // first step averaged: a count, or a share of the run like "0.75"
  double learning_rate = 0.0;    // swa: constant rate from the start on; 0: the schedule's
  std::string buffers = "auto";  // auto, average, copy, estimate (floating buffers)
  int64_t estimate_batches = 0;  // estimate: training batches per estimation; 0: all of them
  bool evaluate = true;          // evaluate and export the averaged weights
};

}  // namespace tanren
