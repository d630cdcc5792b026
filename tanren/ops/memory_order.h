// The order in which the elements of a dense tensor lie in memory, apart from the tensor: as files name it
// and as views show it. Called where state that has its parameter's strides is kept in blocks, slices and
// files.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tanren {

// The elements of a dense tensor as they lie in memory: a 1-dim view.
at::Tensor in_memory(const at::Tensor& dense);
// A 1-dim tensor of the elements of `tensor` as they would lie with `strides`; a view where it can be.
at::Tensor in_memory(const at::Tensor& tensor, at::IntArrayRef strides);

// Whether both put the elements of `sizes` into one order.
bool same_order(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b);
std::vector<int64_t> plain_strides(at::IntArrayRef sizes);

// The dimensions of more than one element, from the outermost in memory: "0,2,3,1"; empty where they lie
// in the shape's own order.
std::string memory_order(at::IntArrayRef sizes, at::IntArrayRef strides);
// The strides of a dense tensor of such an order; CheckpointError if `order` is none of `sizes`.
std::vector<int64_t> strides_of_order(at::IntArrayRef sizes, const std::string& order);

}  // namespace tanren
