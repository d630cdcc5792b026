// A library with NVML's functions and four fake devices: one that reports everything, one that
// supports little, one that is lost, one with more processes than fit into the first call. Built
// like a new driver (TANREN_DRIVER_new) and like an old one (TANREN_DRIVER_old). Loaded by
// nvml_test. STAND_IN_NVML in the environment: "mismatch" does not start, "none" has no device.
#include <cstdlib>
#include <cstring>

namespace {

enum Code { success = 0, not_supported = 3, insufficient_size = 7, is_lost = 15, mismatch = 18 };
constexpr unsigned long long kGiB = 1ULL << 30;
constexpr unsigned kManyProcesses = 300;

struct Device {
  unsigned index;
};
Device devices[] = {{0}, {1}, {2}, {3}};

bool asked_for(const char* mode) {
  const char* text = std::getenv("STAND_IN_NVML");
  return text != nullptr && std::strcmp(text, mode) == 0;
}

unsigned index_of(void* device) { return static_cast<Device*>(device)->index; }

int copy(const char* text, char* buffer, unsigned size) {
  if (std::strlen(text) + 1 > size) return insufficient_size;
  std::strcpy(buffer, text);
  return success;
}

#ifdef TANREN_DRIVER_new
struct Entry {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
#else
struct Entry {
  unsigned pid;
  unsigned long long bytes;
};
#endif

int list(void* device, unsigned* count, Entry* entries, bool graphics) {
  const unsigned index = index_of(device);
  const unsigned needed = index == 3 ? kManyProcesses : index == 0 ? 2 : 0;
  const unsigned room = *count;
  *count = needed;
  if (index == 1) return not_supported;
  if (needed > room) return insufficient_size;
  for (unsigned i = 0; i < needed; ++i) {
    entries[i] = {};
    entries[i].pid = 1000 + i;
    entries[i].bytes = kGiB;
  }
  // One process without a byte count, and one that only draws.
  if (index == 0) entries[1] = {graphics ? 42U : 1001U, ~0ULL};
  return success;
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): names of NVML.

int nvmlInit_v2() { return asked_for("mismatch") ? mismatch : success; }
int nvmlShutdown() { return success; }
const char* nvmlErrorString(int code) {
  return code == mismatch ? "Driver/library version mismatch" : "GPU is lost";
}
int nvmlSystemGetDriverVersion(char* buffer, unsigned size) { return copy("999.1", buffer, size); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = asked_for("none") ? 0 : 4;
  return success;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 2) return is_lost;
  *device = &devices[index];
  return success;
}
int nvmlDeviceGetName(void* device, char* buffer, unsigned size) {
  return copy(index_of(device) == 0 ? "Stand-in A" : "Stand-in B", buffer, size);
}
int nvmlDeviceGetUUID(void*, char* buffer, unsigned size) { return copy("GPU-0", buffer, size); }
// used includes the reserved bytes, as in NVML's function
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  if (index_of(device) == 1) return not_supported;
  memory[0] = 80 * kGiB;
  memory[1] = 76 * kGiB;
  memory[2] = 4 * kGiB;
  return success;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* percents) {
  if (index_of(device) == 1) return not_supported;
  percents[0] = 97;
  percents[1] = 45;
  return success;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  *celsius = 61;
  return sensor == 0 ? success : not_supported;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 312500;
  return index_of(device) == 1 ? not_supported : success;
}

#ifdef TANREN_DRIVER_new
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  constexpr unsigned kVersion = sizeof(MemoryV2) | (2U << 24);
  if (memory->version != kVersion || index_of(device) == 1) return not_supported;
  *memory = {kVersion, 80 * kGiB, kGiB, 76 * kGiB, 3 * kGiB};
  return success;
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return success;
}
int nvmlDeviceGetPciInfo_v3(void*, char* info) {
  std::strcpy(info + 16 + 5 * sizeof(unsigned), "00000000:17:00.0");
  return success;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Entry* entries) {
  return list(device, count, entries, false);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void* device, unsigned* count, Entry* entries) {
  return list(device, count, entries, true);
}
#else
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, Entry* entries) {
  return list(device, count, entries, false);
}
#endif
// NOLINTEND(readability-identifier-naming)
}
