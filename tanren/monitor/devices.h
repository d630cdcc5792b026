// The state of each accelerator of this machine at one moment, behind an interface that hides the
// source of the numbers. One thread. Called by monitor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct DeviceProcess {
  int64_t pid = 0;               // as the driver numbers it; in a container not the pid in /proc
  std::optional<int64_t> bytes;  // of device memory; absent: the driver gives none
};

// Values that a device does not report are absent.
struct DeviceState {
  int64_t index = 0;  // in the order of kDeviceOrder
  std::string name, uuid, pci_bus;
  std::optional<int64_t> total_bytes, used_bytes, free_bytes;
  std::optional<int64_t> reserved_bytes;  // for driver and firmware; neither used nor free
  // Shares of the driver's last sampling period (1/6 to 1 s) in which a kernel ran, or memory was
  // read or written.
  std::optional<double> busy_share, memory_busy_share;
  std::optional<double> celsius, watts, watts_limit;
  std::vector<DeviceProcess> processes;  // by pid
  std::string problem;  // why the device reports nothing (lost, needs a reset); else empty
};

constexpr const char* kDeviceOrder =
    "by PCI bus, as in nvidia-smi; CUDA puts the fastest first unless "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID, "
    "and counts those of CUDA_VISIBLE_DEVICES alone";

class DeviceReader {
 public:
  virtual ~DeviceReader() = default;
  // In the order of kDeviceOrder; a device that fails is listed with its problem. Throws nothing.
  virtual std::vector<DeviceState> read() = 0;
  virtual std::string driver() const = 0;  // its version; empty: unknown
};

struct Devices {
  std::unique_ptr<DeviceReader> reader;  // null: there is none
  std::string why_none;                  // in words
};

}  // namespace tanren
