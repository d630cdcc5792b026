// The plan as text for people and as JSON for programs.
#pragma once

#include "tanren/plan/plan.h"

#include <string>

namespace tanren {

// Columns: key, value, source (asked, default, planned), reason.
std::string plan_text(const Plan& plan);
// {"<key>": {"value": …, "source": …, "reason": …}, …}
std::string plan_json(const Plan& plan);

}  // namespace tanren
