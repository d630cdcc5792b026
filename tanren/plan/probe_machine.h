// What this machine offers, read from the kernel; accelerators are added by run/device.h.
#pragma once

#include "tanren/plan/plan.h"

namespace tanren {

// Cores: affinity, cut to the cgroup's CPU quota (at least 1). Memory: the cgroup's limit if lower.
Machine probe_machine();

}  // namespace tanren
