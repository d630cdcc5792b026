// The anatomy of a config's training step: time of operators and bytes of memory, measured over a
// few steps in memory; no file is touched. Shown by `tanren anatomy`.
#pragma once

#include "tanren/anatomy/report.h"
#include "tanren/config/run_config.h"
#include "tanren/train/registry.h"

namespace tanren {

// Runs two steps to warm up, the second traced for its memory; then three for times and three for
// operators; then, if it advises, variants of the run in turns with it (advice.h). Errors as
// `tanren run` has them.
Anatomy dissect(const RunConfig& config, const Registry& registry, bool advises = true);

}  // namespace tanren
