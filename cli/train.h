// Trains as the verb run does, with its signal handling and its output. Called by the verb, and by
// trials of a sweep in their own processes.
#pragma once

#include "cli/verbs.h"

#include <functional>

namespace tanren::cli {

// Installs the signal handlers, then calls `named` for the run and trains it. `begun` is called
// before the first step, once all that the run needs is there. Returns the exit code. Errors as
// tanren::run.
int train(const Arguments& arguments, const Registry& registry, const std::function<Named()>& named,
          const std::function<void()>& begun = {});

}  // namespace tanren::cli
