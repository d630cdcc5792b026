#include "tanren/config/device_name.h"

#include "tanren/base/text.h"
#include "tanren/config/problems.h"

namespace tanren {

std::optional<DeviceName> read_device_name(std::string_view name) {
  DeviceName device{std::string(name.substr(0, name.find(':')))};
  if (device.kind.size() == name.size()) return device;
  const std::string index(name.substr(device.kind.size() + 1));
  if (!reads_as(index, device.index) || device.index < 0 || device.index > 1023) return {};
  return device;
}

std::string device_name(std::string_view kind, int64_t index) {
  return fmt::format("{}:{}", kind, index);
}

}  // namespace tanren
