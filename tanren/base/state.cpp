#include "tanren/base/state.h"

#include "tanren/base/error.h"

#include <type_traits>

namespace tanren {

State part_below(const State& whole, const std::string& prefix) {
  State part;
  const std::string start = prefix + ".";
  for (const auto& [name, tensor] : whole.tensors) {
    if (name.starts_with(start)) part.tensors.set(name.substr(start.size()), tensor);
  }
  for (const auto& [name, value] : whole.values) {
    if (name.starts_with(start)) part.values[name.substr(start.size())] = value;
  }
  return part;
}

template <typename T>
T value_of(const State& state, const std::string& name) {
  const auto found = state.values.find(name);
  if (found == state.values.end()) {
    throw CheckpointError("[checkpoint] the saved state has no value " + name +
                          "; it was written by another version or config");
  }
  if (const auto* value = std::get_if<T>(&found->second)) return *value;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* value = std::get_if<int64_t>(&found->second))
      return static_cast<double>(*value);
  }
  throw CheckpointError("[checkpoint] the saved value " + name + " has another type than expected");
}

template bool value_of<bool>(const State&, const std::string&);
template int64_t value_of<int64_t>(const State&, const std::string&);
template double value_of<double>(const State&, const std::string&);
template std::string value_of<std::string>(const State&, const std::string&);

}  // namespace tanren
