// PtValue: a nested document of Python values that write_pt writes to a .pt file.
#pragma once

#include "tanren/base/state.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct PtValue {
  enum class Kind : uint8_t { none, plain, tensor, list, tuple, dict };

  Kind kind = Kind::none;
  Value plain = false;
  at::Tensor tensor = {};
  std::vector<PtValue> items = {};  // dict: key, value, key, value, …

  static PtValue none() { return {}; }
  static PtValue of(Value value) { return {Kind::plain, std::move(value)}; }
  static PtValue of(at::Tensor tensor) { return {Kind::tensor, false, std::move(tensor)}; }
  static PtValue list(std::vector<PtValue> items = {}) {
    return {Kind::list, false, {}, std::move(items)};
  }
  static PtValue tuple(std::vector<PtValue> items) {
    return {Kind::tuple, false, {}, std::move(items)};
  }
  static PtValue dict() { return {Kind::dict}; }
  static PtValue dict(const TensorMap& tensors) {
    PtValue value = dict();
    for (const auto& [name, tensor] : tensors) value.add(Value(name), of(tensor));
    return value;
  }
  // Adds an entry to a dict; the key is a text or an integer.
  PtValue& add(Value key, PtValue value) {
    items.push_back(of(std::move(key)));
    items.push_back(std::move(value));
    return *this;
  }
};

}  // namespace tanren
