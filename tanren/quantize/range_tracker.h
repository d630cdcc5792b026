// RangeTracker: the numbers that a layer's input takes, and the range that its bytes cover (torch:
// "observer"). The result depends on the numbers alone, bit by bit: not on their order, nor on
// their split into tensors. Not thread-safe. Called by calibration.h.
#pragma once

#include "tanren/ops/quantized_linear.h"
#include "tanren/plan/plan.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// How often numbers were seen, each rounded to 11 significant bits. The counters of an octave are
// allocated when its first number comes, so numbers of any size can come at any time.
class NumberCounts {
 public:
  // All must be finite.
  void add(const float* numbers, int64_t count);

  struct Bin {
    double value = 0, count = 0;
  };
  // In ascending order of the values, without empty ones.
  std::vector<Bin> bins() const;

 private:
  // Counters by sign and exponent, negative numbers first. An empty vector: no number was seen.
  std::array<std::vector<int64_t>, 512> octaves_;
};

class RangeTracker {
 public:
  // `name`: of the weight that reads the input, for errors.
  RangeTracker(RangeKind kind, std::string name) : kind_(kind), name_(std::move(name)) {}

  // x: floating numbers of any shape. Throws an InputError if one of them is not finite in fp32.
  void add(const at::Tensor& x);
  bool is_empty() const { return !has_seen_; }
  // Whether all numbers seen were the same.
  bool is_constant() const { return has_seen_ && lowest_ == highest_; }

  // The scale and zero point of the bytes. 0 is always exact, and so is an input that has always
  // been the same number (unless that is below fp32's normal numbers). minmax: the range covers
  // all that was seen. mse: of the ranges within it, the one whose bytes have the least squared
  // error, in steps of 0.3 per cent of its width. Throws an Error if nothing was seen.
  InputScale scale() const;

 private:
  RangeKind kind_;
  std::string name_;
  bool has_seen_ = false;
  float lowest_ = 0, highest_ = 0;
  NumberCounts counts_;  // mse
};

}  // namespace tanren
