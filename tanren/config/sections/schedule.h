// [schedule]: the learning rate over the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct ScheduleOptions {
  // constant, linear, cosine, cosine_with_restarts, polynomial, inverse_sqrt, step, multi_step,
  // one_cycle, warmup_stable_decay, reduce_on_plateau
  std::string kind = "constant";
  int64_t warmup_steps = 0;         // linear from 0 to the learning rate; not one_cycle
  double final_fraction = 0.0;      // learning rate at the end of the run, as a share of the peak
  int64_t cycles = 1;               // cosine_with_restarts
  double cycle_growth = 1.0;        // cosine_with_restarts: length of a cycle / the one before
  double power = 1.0;               // polynomial
  int64_t timescale = 0;            // inverse_sqrt; 0: warmup_steps, or 10000 if that is 0
  int64_t step_size = 0;            // step: updates between two reductions
  std::vector<int64_t> milestones;  // multi_step: updates before each reduction
  double factor = 0.1;              // step, multi_step, reduce_on_plateau
  double warmup_fraction = 0.3;     // one_cycle: share of the run in which the rate rises
  double div_factor = 25.0;         // one_cycle: peak / first rate
  double final_div_factor = 1e4;    // one_cycle: first rate / last rate
  std::string shape = "cosine";     // one_cycle, warmup_stable_decay: cosine, linear, 1-sqrt
  int64_t decay_steps = 0;          // warmup_stable_decay; 0: a tenth of the run
  std::string metric = "loss";      // reduce_on_plateau: the evaluation's metric
  std::string mode = "auto";        // reduce_on_plateau: min, max; auto: by the metric
  int64_t patience = 10;            // reduce_on_plateau: evaluations without improvement
  double threshold = 1e-4;          // reduce_on_plateau
  std::string threshold_mode = "rel";  // reduce_on_plateau: rel, abs
  int64_t cooldown = 0;                // reduce_on_plateau: evaluations after a reduction
};

}  // namespace tanren
