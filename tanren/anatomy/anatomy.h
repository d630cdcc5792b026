// The anatomy of a config's training step: time of operators and bytes of memory, measured over a
// few steps in memory; no file is touched. Shown by `tanren anatomy`.
#pragma once

#include "tanren/anatomy/report.h"
#include "tanren/config/run_config.h"
#include "tanren/train/registry.h"

namespace tanren {

// Runs two steps to warm up and traces the memory of the second. Then it runs three steps for times
// and three for operators. If `advises`, it then runs variants in turns with the run itself
// (advice.h). Throws the same errors as `tanren run`.
Anatomy dissect(const RunConfig& config, const Registry& registry, bool advises = true);

}  // namespace tanren
