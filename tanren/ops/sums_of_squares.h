// sums_of_squares: of ranges of flat gradients, in double, in one pass over memory. On the CPU a
// sum depends on the elements of its range alone: not on where the range lies, on other ranges or
// on the number of threads. So sums of whole parameters have the same bits in every layout. The
// square of an fp32 or 16-bit element always fits. Thread-safe. Called by global_norm and measure.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tanren {

// Elements [begin, begin + size) of one of several flat tensors.
struct FlatRange {
  size_t tensor = 0;
  int64_t begin = 0, size = 0;
};

// One number for each range, where its elements are.
struct SumsOfSquares {
  std::vector<double> on_host = {};  // on the CPU
  at::Tensor on_device = {};         // on other devices: [ranges], double; undefined on the CPU
};

// `flat`: dense, of floating dtypes, all on `device`; 1-dim if that is not the CPU. There may be
// none. Ranges count elements in the order of memory; one of size 0 gives 0, and its `tensor` need
// not exist. An infinite or NaN element makes its sum infinite or NaN; so does an fp64 element
// beyond 1e154, whose square does not fit.
SumsOfSquares sums_of_squares(at::TensorList flat, const std::vector<FlatRange>& ranges,
                              at::Device device);

}  // namespace tanren
