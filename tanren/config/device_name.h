// Names of devices, as in configs and in torch: "cpu", or the kind of an accelerator with or
// without an index, "cuda" or "cuda:1".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tanren {

struct DeviceName {
  std::string kind;
  int64_t index = -1;  // -1: none
};

// Nothing if what follows the colon is no number from 0 to 1023.
std::optional<DeviceName> read_device_name(std::string_view name);

std::string device_name(std::string_view kind, int64_t index);

}  // namespace tanren
