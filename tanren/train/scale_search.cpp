#include "tanren/train/scale_search.h"

#include "tanren/train/accumulate.h"
#include "tanren/train/undo.h"
#include "tanren/train/window.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tanren {

namespace {

// The search for one objective's scale.
struct Search {
  Objective* objective;
  size_t place;               // among the objectives in turn
  State before;               // the scaler's
  int low = 0, high = 32;     // 2^low is assumed to be fine, 2^high not
  bool has_given_up = false;  // its loss is not finite

  int middle() const { return (low + high) / 2; }
  bool is_under_way() const { return !has_given_up && high - low > 1; }
  void give_up() {
    has_given_up = true;
    objective->scaler.load(before);
  }
};

std::vector<Search> searches_of(Phase& phase) {
  std::vector<Search> searches;
  const auto objectives = phase.in_turn();
  for (size_t i = 0; i < objectives.size(); ++i) {
    LossScaler& scaler = objectives[i]->scaler;
    if (scaler.wants_search()) searches.push_back({objectives[i], i, scaler.state()});
  }
  return searches;
}

}  // namespace

bool find_initial_scale(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch) {
  std::vector<Search> searches = searches_of(phase);
  if (searches.empty()) return true;
  const Undo undo(run, parts.device, /*with_generators=*/true);
  const auto give_up = [&] {
    for (Search& search : searches) search.give_up();
  };
  const auto is_under_way = [](const Search& search) { return search.is_under_way(); };
  while (std::any_of(searches.begin(), searches.end(), is_under_way)) {
    for (const Search& search : searches) {
      if (search.has_given_up) continue;
      const int exponent = search.is_under_way() ? search.middle() : search.low;
      search.objective->scaler.set_searched(std::ldexp(1.0, exponent));
    }
    LossMeter losses;
    bool done = false;
    WindowStatus window;
    try {
      done = accumulate(phase, run, parts, batch, losses);
      if (done) window = measure_window(phase, *run.task.module, parts, batch, losses);
    } catch (...) {  // restored as below
      undo.restore_after_error();
      give_up();
      throw;
    }
    undo.restore_all();
    if (!done) {
      give_up();
      return false;
    }
    for (Search& search : searches) {
      if (!search.is_under_way()) continue;
      const Status& status = window.objectives[search.place];
      const int middle = search.middle();
      if (!std::isfinite(status.loss)) {
        search.give_up();
      } else {
        (std::isfinite(status.norm) ? search.low : search.high) = middle;
      }
    }
  }
  for (const Search& search : searches) {
    if (search.has_given_up) continue;
    search.objective->scaler.set_searched(std::ldexp(1.0, std::max(search.low - 1, 0)));
  }
  return true;
}

}  // namespace tanren
