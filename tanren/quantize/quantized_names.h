// The names of the tensors that belong to an 8-bit weight, in files and in modules. For `x.weight`:
// `x.weight_scale`, `x.input_scale` and `x.input_zero_point`. For a parameter of another name,
// `x.kernel`: `x.kernel_scale`, `x.kernel_input_scale` and `x.kernel_input_zero_point`.
#pragma once

#include <string>
#include <string_view>

namespace tanren {

struct QuantizedNames {
  std::string scale, input_scale, input_zero_point;
};

inline QuantizedNames quantized_names(const std::string& parameter) {
  constexpr std::string_view kWeight = "weight";
  const bool is_weight = parameter == kWeight || parameter.ends_with(".weight");
  const std::string start =
      is_weight ? parameter.substr(0, parameter.size() - kWeight.size()) : parameter + "_";
  return {parameter + "_scale", start + "input_scale", start + "input_zero_point"};
}

}  // namespace tanren
