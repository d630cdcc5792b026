// Reads NVIDIA devices through the driver's management library (NVML). The library is loaded on
// demand and never linked, so the same program runs without it. Takes no memory on a device and
// creates no context there. One thread. Called by the command line.
#pragma once

#include "tanren/monitor/devices.h"

#include <string>

namespace tanren {

// Loads `library`. If it is missing, or does not start, the reader is null and the reason is given.
// Uses the newest version of each function that the library has, back to drivers of 2014.
Devices open_nvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace tanren
