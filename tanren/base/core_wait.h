// How long runnable threads wait for a core, as the kernel counts it: parses the texts of
// /proc/…/schedstat and /proc/pressure/cpu. Torch-free, no state. Called by run/short_waits and by
// metrics/contention.
#pragma once

#include <optional>
#include <string_view>

namespace tanren {

// Seconds that the thread of this schedstat ("ran waited slices", nanoseconds) has waited so far.
std::optional<double> seconds_waited(std::string_view schedstat);

// The share (0 to 1) of the last ten seconds in which some process of the machine waited for a
// core. The text gives it in percent: "some avg10=63.10 …".
std::optional<double> share_of_pressure(std::string_view pressure);

}  // namespace tanren
