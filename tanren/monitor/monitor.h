// Samples this machine's state repeatedly: counters of two looks become shares of the time between
// them. Reads /proc, /sys and the ends of logs, writes nothing. One thread. Called by the command
// line.
#pragma once

#include "tanren/monitor/devices.h"
#include "tanren/monitor/machine_state.h"
#include "tanren/monitor/runs.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// A run and its resource use.
struct RunLook {
  RunStatus status;
  std::optional<double> busy_cores;  // since the previous look; 1: one core all the time
  // Device index, and the bytes used there if the driver reports them.
  std::vector<std::pair<int64_t, std::optional<int64_t>>> device_bytes;
};

struct Look {
  double unix_seconds = 0;
  double interval_seconds = 0;  // since the previous look; 0: there is none
  MachineState machine;
  std::optional<double> busy_share;         // of all cores
  std::optional<double> cgroup_busy_cores;  // kept busy by this process's cgroup
  std::string driver;
  std::vector<DeviceState> devices;
  std::string why_no_devices;
  std::map<int64_t, std::string> process_names;  // by pid: processes on devices that /proc shows
  std::vector<RunLook> runs;
};

class Monitor {
 public:
  explicit Monitor(Devices devices, std::filesystem::path root = "/");
  // Shares are absent in the first look.
  Look look();

 private:
  Devices devices_;
  std::filesystem::path root_;
  std::optional<double> looked_at_;  // seconds of the steady clock
  MachineState before_;
  // CPU seconds by pid and start time, so that a reused pid starts again.
  std::map<std::pair<int64_t, int64_t>, double> cpu_before_;
};

}  // namespace tanren
