// A search of your own, without a config or a model: at which angle and speed does a ball fly
// farthest if effort counts? If it is killed and started again, it resumes from its journal.
//   own_search JOURNAL.jsonl

#include "tanren/base/error.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/study.h"

#include <cmath>
#include <iostream>

// The distance in metres, with air drag, minus the effort of the throw beyond 100.
static double distance_of(double degrees, double speed) {
  const double effort = 0.1 * speed * speed + 0.2 * degrees, angle = degrees * M_PI / 180;
  double x = 0, y = 1.8, along = speed * std::cos(angle), up = speed * std::sin(angle);
  for (constexpr double kStep = 1e-3; y > 0;) {
    const double drag = 0.01 * std::hypot(along, up);
    along -= kStep * drag * along;
    up -= kStep * (9.81 + drag * up);
    x += kStep * along;
    y += kStep * up;
  }
  return x - std::fmax(0, effort - 100);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "own_search JOURNAL.jsonl\n";
    return 2;
  }
  try {
    const tanren::Space space{{.key = "angle", .low = 0.0, .high = 90.0},
                              {.key = "speed", .low = 1.0, .high = 60.0, .scale = "log"}};
    tanren::Study study(
        space, {.trials = 50, .lower_is_better = false, .metric = "metres", .journal = argv[1]});
    while (const auto trial = study.ask()) {
      study.tell(*trial, distance_of(trial->number("angle"), trial->number("speed")));
    }
    std::cout << leaderboard_text(study, 5);
  } catch (const tanren::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
  return 0;
}
