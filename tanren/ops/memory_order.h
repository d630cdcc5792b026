// The order in which the elements of a dense tensor lie in memory: its name in files, and views in
// that order. Called where state with its parameter's strides is kept in blocks, slices and files.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tanren {

// A 1-dim view of a dense tensor's elements in memory order.
at::Tensor in_memory(const at::Tensor& dense);
// A 1-dim tensor of the elements of `tensor` in the order that `strides` would give them; a view if
// possible.
at::Tensor in_memory(const at::Tensor& tensor, at::IntArrayRef strides);

// Whether the strides a and b give the elements of `sizes` the same order.
bool same_order(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b);
std::vector<int64_t> plain_strides(at::IntArrayRef sizes);

// The dimensions of more than one element, from the outermost in memory: "0,2,3,1"; empty if that
// is the shape's own order.
std::string memory_order(at::IntArrayRef sizes, at::IntArrayRef strides);
// The strides of a dense tensor with memory_order `order`; CheckpointError if `sizes` has no such
// order.
std::vector<int64_t> strides_of_order(at::IntArrayRef sizes, const std::string& order);

}  // namespace tanren
