// Named tensors in insertion order: the fields of a batch, a state dict, a safetensors file.
// A plain value; small, so look-up is linear.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

class TensorMap {
 public:
  using Item = std::pair<std::string, at::Tensor>;

  // Adds or replaces.
  void set(std::string_view name, at::Tensor tensor);
  // The tensor called `name`; if there is none, DataError that lists the names in the map.
  const at::Tensor& at(std::string_view name) const&;
  // The same for a temporary map. Returns a handle, which outlives the map.
  at::Tensor at(std::string_view name) const&& { return at(name); }
  // Null if there is none. Deleted for a temporary map, because the pointer would outlive it.
  const at::Tensor* find(std::string_view name) const&;
  const at::Tensor* find(std::string_view name) const&& = delete;
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<Item> items_;
};

}  // namespace tanren
