#include "tanren/monitor/nvml.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace tanren {

namespace {

// The types below are those of the NVML API reference (docs.nvidia.com/deploy/nvml-api).
using Handle = void*;
using Code = int;  // nvmlReturn_t
constexpr Code kSuccess = 0;
constexpr Code kNotSupported = 3;
constexpr Code kInsufficientSize = 7;
constexpr int kTemperatureGpu = 0;
constexpr uint64_t kNotAvailable = std::numeric_limits<uint64_t>::max();

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct ProcessV1 {
  unsigned pid;
  unsigned long long bytes;
};
struct ProcessV2 {  // the same in version 3
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct PciInfo {
  std::array<char, 16> legacy_bus;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

struct Close {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

// A function that the library is too old for is null.
struct Functions {
  Code (*init)() = nullptr;
  Code (*shutdown)() = nullptr;
  const char* (*error_text)(Code) = nullptr;
  Code (*count)(unsigned*) = nullptr;
  Code (*handle)(unsigned, Handle*) = nullptr;
  Code (*name)(Handle, char*, unsigned) = nullptr;
  Code (*uuid)(Handle, char*, unsigned) = nullptr;
  Code (*pci)(Handle, PciInfo*) = nullptr;
  Code (*memory)(Handle, Memory*) = nullptr;
  Code (*memory_v2)(Handle, MemoryV2*) = nullptr;
  Code (*utilization)(Handle, Utilization*) = nullptr;
  Code (*temperature)(Handle, int, unsigned*) = nullptr;
  Code (*power)(Handle, unsigned*) = nullptr;
  Code (*power_limit)(Handle, unsigned*) = nullptr;
  using Processes = Code (*)(Handle, unsigned*, void*);
  std::array<Processes, 2> processes{};     // compute, graphics
  std::array<Processes, 2> processes_v1{};  // for the older, shorter entries
  Code (*driver)(char*, unsigned) = nullptr;
};

// Takes the first of `names` that the library has.
template <class F>
void take(const Library& library, F& function, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (function == nullptr) function = reinterpret_cast<F>(::dlsym(library.get(), name));
  }
}

Functions functions_of(const Library& library) {
  Functions f;
  take(library, f.init, {"nvmlInit_v2", "nvmlInit"});
  take(library, f.shutdown, {"nvmlShutdown"});
  take(library, f.error_text, {"nvmlErrorString"});
  take(library, f.count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  take(library, f.handle, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
  take(library, f.name, {"nvmlDeviceGetName"});
  take(library, f.uuid, {"nvmlDeviceGetUUID"});
  take(library, f.pci, {"nvmlDeviceGetPciInfo_v3"});
  take(library, f.memory, {"nvmlDeviceGetMemoryInfo"});
  take(library, f.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  take(library, f.utilization, {"nvmlDeviceGetUtilizationRates"});
  take(library, f.temperature, {"nvmlDeviceGetTemperature"});
  take(library, f.power, {"nvmlDeviceGetPowerUsage"});
  take(library, f.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
  take(library, f.processes[0],
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  take(library, f.processes[1],
       {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
  take(library, f.processes_v1[0], {"nvmlDeviceGetComputeRunningProcesses"});
  take(library, f.processes_v1[1], {"nvmlDeviceGetGraphicsRunningProcesses"});
  take(library, f.driver, {"nvmlSystemGetDriverVersion"});
  return f;
}

std::optional<int64_t> bytes_of(unsigned long long bytes) {
  if (bytes == kNotAvailable) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

// A text that the function writes into a buffer; empty if it has none.
template <class F>
std::string text_of(F&& function) {
  std::array<char, 128> buffer{};
  if (function(buffer.data(), static_cast<unsigned>(buffer.size() - 1)) != kSuccess) return "";
  return one_line(buffer.data());
}

// A number that the function writes, times `unit`.
template <class F, class... Arguments>
std::optional<double> number_of(F function, double unit, Handle device, Arguments... arguments) {
  unsigned value = 0;
  if (function == nullptr || function(device, arguments..., &value) != kSuccess) {
    return std::nullopt;
  }
  return value * unit;
}

template <class Entry>
void add_processes(Functions::Processes function, Handle device,
                   std::map<int64_t, std::optional<int64_t>>& found) {
  std::vector<Entry> entries(64);
  for (int attempt = 0; attempt < 4; ++attempt) {  // more may start between two calls
    auto count = static_cast<unsigned>(entries.size());
    const Code code = function(device, &count, entries.data());
    if (code == kInsufficientSize) {
      entries.resize(std::max<size_t>(count, entries.size()) * 2);
      continue;
    }
    if (code != kSuccess) return;
    for (unsigned i = 0; i < std::min<size_t>(count, entries.size()); ++i) {
      const auto bytes = bytes_of(entries[i].bytes);
      // A process that computes and draws is listed twice, with the same bytes.
      auto& known = found[entries[i].pid];
      if (bytes && bytes > known) known = bytes;
    }
    return;
  }
}

class NvmlReader final : public DeviceReader {
 public:
  NvmlReader(Library library, const Functions& functions)
      : library_(std::move(library)), functions_(functions) {}
  ~NvmlReader() override {
    if (functions_.shutdown != nullptr) functions_.shutdown();
  }
  NvmlReader(const NvmlReader&) = delete;
  NvmlReader& operator=(const NvmlReader&) = delete;

  std::vector<DeviceState> read() override {
    unsigned count = 0;
    std::vector<DeviceState> states;
    if (functions_.count(&count) != kSuccess) return states;
    for (unsigned i = 0; i < count; ++i) {
      Handle device = nullptr;
      const Code code = functions_.handle(i, &device);
      states.push_back(code == kSuccess ? state_of(device) : DeviceState{.problem = text(code)});
      states.back().index = i;
    }
    return states;
  }

  std::string driver() const override {
    return functions_.driver == nullptr ? "" : text_of(functions_.driver);
  }

  std::string text(Code code) const {
    const char* text = functions_.error_text == nullptr ? nullptr : functions_.error_text(code);
    return text == nullptr ? fmt::format("NVML error {}", code) : one_line(text);
  }

 private:
  DeviceState state_of(Handle device) const {
    const Functions& f = functions_;
    const auto text_from = [device](auto function) {
      if (function == nullptr) return std::string();
      return text_of([&](char* buffer, unsigned size) { return function(device, buffer, size); });
    };
    DeviceState state;
    state.name = text_from(f.name);
    state.uuid = text_from(f.uuid);
    PciInfo pci{};
    if (f.pci != nullptr && f.pci(device, &pci) == kSuccess) {
      pci.bus_id.back() = '\0';
      state.pci_bus = one_line(pci.bus_id.data());
    }
    read_memory(device, state);
    Utilization busy{};
    if (f.utilization != nullptr && f.utilization(device, &busy) == kSuccess) {
      state.busy_share = busy.gpu / 100.0;
      state.memory_busy_share = busy.memory / 100.0;
    }
    state.celsius = number_of(f.temperature, 1, device, kTemperatureGpu);
    state.watts = number_of(f.power, 1e-3, device);
    state.watts_limit = number_of(f.power_limit, 1e-3, device);
    std::map<int64_t, std::optional<int64_t>> processes;
    for (size_t i = 0; i < f.processes.size(); ++i) {
      if (f.processes[i] != nullptr) {
        add_processes<ProcessV2>(f.processes[i], device, processes);
      } else if (f.processes_v1[i] != nullptr) {
        add_processes<ProcessV1>(f.processes_v1[i], device, processes);
      }
    }
    for (const auto& [pid, bytes] : processes) state.processes.push_back({pid, bytes});
    return state;
  }

  void read_memory(Handle device, DeviceState& state) const {
    MemoryV2 newer{};
    newer.version = sizeof(MemoryV2) | (2U << 24);
    if (functions_.memory_v2 != nullptr && functions_.memory_v2(device, &newer) == kSuccess) {
      state.total_bytes = bytes_of(newer.total);
      state.used_bytes = bytes_of(newer.used);
      state.free_bytes = bytes_of(newer.free);
      state.reserved_bytes = bytes_of(newer.reserved);
      return;
    }
    Memory older{};  // reserved bytes count as used
    if (functions_.memory == nullptr) return;
    const Code code = functions_.memory(device, &older);
    if (code == kSuccess) {
      state.total_bytes = bytes_of(older.total);
      state.used_bytes = bytes_of(older.used);
      state.free_bytes = bytes_of(older.free);
    } else if (code != kNotSupported) {
      state.problem = text(code);
    }
  }

  Library library_;  // outlives its functions
  Functions functions_;
};

}  // namespace

Devices open_nvml(const std::string& library) {
  Library opened(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!opened) return {nullptr, "no NVIDIA driver here (" + library + " is not there)"};
  const Functions functions = functions_of(opened);
  if (functions.init == nullptr || functions.count == nullptr || functions.handle == nullptr) {
    return {nullptr, library + " is no NVML: it lacks nvmlInit or its kin"};
  }
  const Code code = functions.init();
  if (code != kSuccess) {
    const char* text = functions.error_text == nullptr ? nullptr : functions.error_text(code);
    return {nullptr, "NVML does not start: " +
                         (text == nullptr ? fmt::format("error {}", code) : one_line(text))};
  }
  return {std::make_unique<NvmlReader>(std::move(opened), functions), ""};
}

}  // namespace tanren
