#include "tanren/ops/memory_order.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {

namespace {

// Dimensions of more than one element, from the outermost in memory.
std::vector<size_t> order_of(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<size_t> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1) dims.push_back(i);
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  return dims;
}

std::string text_of(const std::vector<size_t>& dims) {
  std::string text;
  for (const size_t dim : dims) text += (text.empty() ? "" : ",") + to_text(dim);
  return text;
}

}  // namespace

at::Tensor in_memory(const at::Tensor& dense) { return dense.as_strided({dense.numel()}, {1}); }

at::Tensor in_memory(const at::Tensor& tensor, at::IntArrayRef strides) {
  if (same_order(tensor.sizes(), strides, plain_strides(tensor.sizes()))) {
    return tensor.reshape({-1});
  }
  at::Tensor laid = at::empty_strided(tensor.sizes(), strides, tensor.options());
  laid.copy_(tensor);
  return in_memory(laid);
}

bool same_order(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && a[i] != b[i]) return false;
  }
  return true;
}

std::vector<int64_t> plain_strides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

std::string memory_order(at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto dims = order_of(sizes, strides);
  return std::is_sorted(dims.begin(), dims.end()) ? "" : text_of(dims);
}

std::vector<int64_t> strides_of_order(at::IntArrayRef sizes, const std::string& order) {
  std::vector<size_t> dims = order_of(sizes, plain_strides(sizes));
  // Tries all orders: few dimensions have few orders.
  while (!order.empty() && text_of(dims) != order) {
    if (dims.size() > 6 || !std::next_permutation(dims.begin(), dims.end())) {
      throw CheckpointError("[checkpoint] the order '" + order.substr(0, 40) +
                            "' of an optimizer's state is none of its parameter's dimensions; use "
                            "another checkpoint");
    }
  }
  std::vector<int64_t> strides(sizes.size(), 1);
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[dims[i]] = stride;
    stride *= sizes[dims[i]];
  }
  return strides;
}

}  // namespace tanren
