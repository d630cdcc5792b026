// NVIDIA devices through the driver's management library (NVML), loaded when asked for and never
// linked: a machine without it runs the same program. Takes no memory on a device and starts no
// context there. One thread. Called by the command line.
#pragma once

#include "tanren/monitor/devices.h"

#include <string>

namespace tanren {

// Loads `library`; without it, or if it says no, the reader is null and the reason is given. Versioned
// functions are taken at the newest version that the library has, back to drivers of 2014.
Devices open_nvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace tanren
