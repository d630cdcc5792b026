// The highest compute and memory rates of this machine, measured: the roof that operators are
// compared with. Takes a second or less; for anatomy/anatomy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace tanren {

struct MachineSpeed {
  double flops_per_second = 0;  // of one large matrix product
  double bytes_per_second = 0;  // of one large copy, read and written
  std::string dtype;            // of the product
  int64_t matrix = 0;           // its rows and columns
  int64_t copy_bytes = 0;       // read by the copy
};

// The best of a few tries on `device`, with the current number of threads; `finish` waits for the
// device.
MachineSpeed measure_speed(at::Device device, at::ScalarType dtype,
                           const std::function<void()>& finish);

}  // namespace tanren
