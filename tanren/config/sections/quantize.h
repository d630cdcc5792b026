// [quantize]: which weights become 8-bit numbers, and how their inputs do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// The fewest samples from which a calibration takes ranges.
constexpr int64_t kFewestSamples = 8;

struct QuantizeOptions {
  std::string scheme = "none";    // none, weights, dynamic, static
  std::vector<std::string> keep;  // patterns of parameters that stay as they are
  int64_t samples = 256;          // of the training data
  std::string range = "mse";      // static: mse, minmax
  double tolerance = 0.5;         // what the metric may lose: points, or per cent of a loss
};

}  // namespace tanren
