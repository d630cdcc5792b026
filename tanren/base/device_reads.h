// The only function through which the library reads a device's values on the host. Each read is
// counted: a step makes at most one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tanren {

// Copies a 1-dim tensor to the host as doubles. Counts as one device read, on CPU too.
std::vector<double> read_to_host(const at::Tensor& values);
// How many reads this thread has made so far.
int64_t num_device_reads();

}  // namespace tanren
