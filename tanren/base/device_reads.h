// How the library reads a device's values on the host. Each read is counted: a step makes at most
// one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tanren {

// Copies a 1-dim tensor to the host as doubles. Counts as one device read, on CPU too.
std::vector<double> read_to_host(const at::Tensor& values);
// Contiguous copies on the host, of any dtypes and shapes; a contiguous CPU tensor is returned
// itself. Small tensors of one device share a wait and count as one read per 32 MiB.
std::vector<at::Tensor> host_copies(const std::vector<at::Tensor>& tensors);
// How many reads this thread has made so far.
int64_t num_device_reads();

}  // namespace tanren
