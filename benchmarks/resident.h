// The memory of this process as the system reports it.
#pragma once

#include <fstream>
#include <string>

namespace tanren::bench {

// A line of /proc/self/status (VmRSS, VmHWM), in bytes; 0 if there is none.
inline double status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stod(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

}  // namespace tanren::bench
