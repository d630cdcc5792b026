// The stacked plot of a step's memory as SVG, with the numbers that the page's script reads.
#pragma once

#include "tanren/anatomy/report.h"

#include <string>

namespace tanren {

// Empty if no step was traced.
std::string memory_plot(const Anatomy& anatomy);

}  // namespace tanren
