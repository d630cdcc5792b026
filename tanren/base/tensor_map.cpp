#include "tanren/base/tensor_map.h"

#include "tanren/base/error.h"

namespace tanren {

void TensorMap::set(std::string_view name, at::Tensor tensor) {
  for (auto& item : items_) {
    if (item.first == name) {
      item.second = std::move(tensor);
      return;
    }
  }
  items_.emplace_back(std::string(name), std::move(tensor));
}

const at::Tensor* TensorMap::find(std::string_view name) const& {
  for (const auto& item : items_) {
    if (item.first == name) return &item.second;
  }
  return nullptr;
}

const at::Tensor& TensorMap::at(std::string_view name) const& {
  if (const auto* tensor = find(name)) return *tensor;
  std::string known;
  for (const auto& item : items_) known += (known.empty() ? "" : ", ") + item.first;
  throw DataError("[data] there is no tensor " + std::string(name) +
                  "; there are: " + (known.empty() ? "none" : known));
}

}  // namespace tanren
