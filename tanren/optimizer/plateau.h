// Plateau: the state of schedule.kind = "reduce_on_plateau", as torch's ReduceLROnPlateau: a factor
// on the learning rate that falls when evaluations stop improving. The only schedule with state,
// which is saved in the checkpoint. Not thread-safe. The loop calls observe() at each evaluation
// that evaluate.every asks for, not at the one at a run's end, which a longer run would not have.
#pragma once

#include "tanren/base/state.h"
#include "tanren/config/run_config.h"

#include <cstdint>

namespace tanren {

class Plateau {
 public:
  // For a kind other than reduce_on_plateau the factor stays 1. ConfigError for a mode that is
  // neither min nor max (there is no "auto" here).
  Plateau(const ScheduleOptions& options, double peak);

  // Takes the metric of one evaluation; NaN counts as no improvement. True if it reduced the rate.
  bool observe(double metric);
  // Factor on the learning rate: 1, × schedule.factor per reduction, not below final_fraction.
  double scale() const { return scale_; }
  bool is_on() const { return is_on_; }

  State state() const;
  // An empty state comes from another schedule and is ignored: the factor starts at 1.
  void load(const State& state);

 private:
  bool better(double metric) const;

  ScheduleOptions options_;
  double peak_;
  bool is_on_;
  double scale_ = 1;
  double best_;
  int64_t num_bad_ = 0;
  int64_t cooldown_ = 0;
};

}  // namespace tanren
