// QuantizedParameters: the 8-bit weights of a model by the names of its parameters, and what each
// one's layer needs beside them. Made by a calibration or read from a file; used by QuantizeScope,
// which computes the model's operators with them.
#pragma once

#include "tanren/base/quantized_weight.h"
#include "tanren/ops/quantized_linear.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tanren {

// The operator that reads a weight. projection: x W, with the parameter [in, out], as in GPT-2.
enum class WeightReader { linear, projection, convolution, embedding };

constexpr std::string_view name(WeightReader reader) {
  constexpr std::array<std::string_view, 4> kNames = {"linear", "projection", "convolution",
                                                      "embedding"};
  return kNames[static_cast<size_t>(reader)];
}

struct QuantizedParameter {
  // The parameter's shape: [out, in], [out, in, kernel, kernel], [rows, width]. The weight of a
  // projection is transposed to [out, in], so that each output has its own scale.
  QuantizedWeight weight;
  WeightReader reader = WeightReader::linear;
  std::optional<InputScale> input;  // none: dynamic (linear) or not quantised (embedding)
  // Of a linear or projection: its input stays floating, and the weight is expanded for each call.
  bool is_weight_alone = false;
};

// By the parameter's name in the task.
using QuantizedParameters = std::map<std::string, QuantizedParameter, std::less<>>;

}  // namespace tanren
