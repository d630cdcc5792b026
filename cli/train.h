// Training as the verb run does it: with its signals and what it prints. Called by the verb, and by
// trials of a sweep in a process of their own.
#pragma once

#include "cli/verbs.h"

#include <functional>

namespace tanren::cli {

// Hears the signals first, then asks for the run, and trains it. `begun`: called before the first
// step, once all that the run needs is there. Returns the exit code; errors as tanren::run.
int train(const Arguments& arguments, const Registry& registry, const std::function<Named()>& named,
          const std::function<void()>& begun = {});

}  // namespace tanren::cli
