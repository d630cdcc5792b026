// State: the named tensors and plain values that a part of a run saves and loads. The checkpoint
// room turns it into files and back without knowing what the parts are.
#pragma once

#include "tanren/base/tensor_map.h"

#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace tanren {

using Value = std::variant<bool, int64_t, double, std::string>;

struct State {
  TensorMap tensors;
  std::map<std::string, Value> values;
};

// The entries of `whole` whose names begin with `prefix` and a dot, without these.
State part_below(const State& whole, const std::string& prefix);

// values[name] as T (an integer also serves as a double); CheckpointError if it is missing or of
// another type.
template <typename T>
T value_of(const State& state, const std::string& name);

}  // namespace tanren
