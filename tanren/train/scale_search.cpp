#include "tanren/train/scale_search.h"

#include "tanren/train/accumulate.h"
#include "tanren/train/undo.h"
#include "tanren/train/window.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tanren {

bool find_initial_scale(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch) {
  bool wanted = false;
  for (const auto& objective : phase.objectives) wanted |= objective.scaler.wants_search();
  if (!wanted) return true;
  const Undo undo(phase, /*with_generators=*/true);
  std::vector<State> scalers;
  for (const auto& objective : phase.objectives) scalers.push_back(objective.scaler.state());
  const auto give_up = [&] {
    auto before = scalers.begin();
    for (auto& objective : phase.objectives) objective.scaler.load(*before++);
  };
  int low = 0, high = 32;  // 2^low is assumed to be fine, 2^high not
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    for (auto& objective : phase.objectives) objective.scaler.set_searched(std::ldexp(1.0, middle));
    LossMeter losses;
    bool done = false;
    WindowStatus window;
    try {
      done = accumulate(phase, run, parts, batch, losses);
      if (done) window = measure_window(phase, *run.task.module, parts, batch, losses);
    } catch (...) {  // restored as below
      undo.restore_after_error(phase);
      give_up();
      throw;
    }
    undo.restore_all(phase);
    bool finite = true, has_loss = true;
    for (const auto& status : window.objectives) {
      finite = finite && std::isfinite(status.norm);
      has_loss = has_loss && std::isfinite(status.loss);
    }
    if (!done || !has_loss) {
      give_up();
      return done;
    }
    (finite ? low : high) = middle;
  }
  for (auto& objective : phase.objectives) {
    objective.scaler.set_searched(std::ldexp(1.0, std::max(low - 1, 0)));
  }
  return true;
}

}  // namespace tanren
