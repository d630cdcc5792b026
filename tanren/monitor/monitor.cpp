#include "tanren/monitor/monitor.h"

#include <algorithm>
#include <chrono>

namespace tanren {

namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using DeviceBytes = std::vector<std::pair<int64_t, std::optional<int64_t>>>;

DeviceBytes bytes_on_devices(const std::vector<DeviceState>& devices, int64_t pid) {
  DeviceBytes bytes;
  for (const auto& device : devices) {
    for (const auto& process : device.processes) {
      if (process.pid == pid) bytes.emplace_back(device.index, process.bytes);
    }
  }
  return bytes;
}

}  // namespace

Monitor::Monitor(Devices devices, std::filesystem::path root)
    : devices_(std::move(devices)), root_(std::move(root)) {}

Look Monitor::look() {
  Look look;
  const double now = steady_seconds();
  look.unix_seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  look.interval_seconds = looked_at_ ? now - *looked_at_ : 0;
  look.machine = read_machine(root_);
  const bool again = look.interval_seconds > 0;
  const int64_t ticks = look.machine.total_ticks - before_.total_ticks;
  if (again && ticks > 0) {
    const auto busy = static_cast<double>(look.machine.busy_ticks - before_.busy_ticks);
    look.busy_share = std::clamp(busy / static_cast<double>(ticks), 0.0, 1.0);
  }
  if (again && look.machine.cgroup_cpu_seconds && before_.cgroup_cpu_seconds) {
    const double used = *look.machine.cgroup_cpu_seconds - *before_.cgroup_cpu_seconds;
    look.cgroup_busy_cores = std::max(0.0, used / look.interval_seconds);
  }

  look.why_no_devices = devices_.why_none;
  if (devices_.reader) {
    look.driver = devices_.reader->driver();
    look.devices = devices_.reader->read();
    if (look.devices.empty()) look.why_no_devices = "NVML shows none";
  }
  for (const auto& device : look.devices) {
    for (const auto& process : device.processes) {
      const auto known = read_process(process.pid, root_);
      if (known) look.process_names[process.pid] = known->name;
    }
  }

  std::map<std::pair<int64_t, int64_t>, double> cpu;
  for (auto& status : find_runs(root_)) {
    const ProcessState& process = status.process;
    const std::pair key{process.pid, process.start_ticks};
    cpu[key] = process.cpu_seconds;
    RunLook run{.device_bytes = bytes_on_devices(look.devices, process.pid)};
    if (const auto found = cpu_before_.find(key); again && found != cpu_before_.end()) {
      run.busy_cores = std::max(0.0, process.cpu_seconds - found->second) / look.interval_seconds;
    }
    run.status = std::move(status);
    look.runs.push_back(std::move(run));
  }
  looked_at_ = now;
  before_ = look.machine;
  cpu_before_ = std::move(cpu);
  return look;
}

}  // namespace tanren
