// Random numbers that a forward draws, such as a GAN's noise. Element e of sample i at site s is a
// function of (seed, attempt, s; i, e) of the thread's RandomScope, as in dropout.h: microbatch
// size, sample order, ranks, recompute, retry and resume cannot change it. Called by models.
// Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// A tensor of shape `sizes`, whose dim 0 is the samples of the RandomScope, in its order; `site` is
// of site_id(). `options`: device, and fp32 or fp64. The numbers are drawn on the CPU and copied to
// the device; the host does not wait for the copy. Error outside a RandomScope, for another number
// of samples, or for another dtype.
// Uniform in [0, 1), in steps of 2^-24.
at::Tensor uniform(at::IntArrayRef sizes, uint64_t site, const at::TensorOptions& options = {});
// Standard normal, by Box and Muller (1958) of 32 bits each.
at::Tensor normal(at::IntArrayRef sizes, uint64_t site, const at::TensorOptions& options = {});

}  // namespace tanren
