// Resizer: resize with antialiasing of an image that arrives row by row. Each row is added to the
// output rows that use it, so only unfinished output rows are held in memory. The weights are PIL's
// (a kernel as wide as the step between outputs, cut at the image's edge, then normalised), and
// results lie within one 8-bit level of PIL's. Torch-free. For one thread at a time; its memory is
// reused from image to image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tanren {

// bilinear: a triangle. PIL rounds values between the two directions; this code does not. bicubic:
// PIL's cubic (a = -0.5), which overshoots at edges. As in PIL, each row is first resized
// horizontally, in fixed-point numbers, and rounded to whole levels in [0, 255], because the
// rounding changes the result of the vertical direction. nearest: the one input pixel that contains
// the output's centre, so no values are mixed.
enum class Filter { bilinear, bicubic, nearest };

// Sampling positions in one direction: output i is centred at origin + (i + 0.5) * step, in input
// pixels. Only the inputs [low, high) exist; outputs whose centre lies outside are 0.
struct Axis {
  int64_t outputs = 0;
  double origin = 0;
  double step = 1;
  int64_t low = 0, high = 0;
  bool reversed = false;  // a centre between two inputs belongs to the lower one

  // The same outputs, in reverse, on an input of `size` pixels that is read from its other end.
  Axis mirrored(int64_t size) const;
  // The same outputs on an input that was scaled down by `divisor`.
  Axis divided(int64_t divisor) const;
};

// The inputs of each output, and their weights.
class AxisTaps {
 public:
  struct Run {
    int64_t first = 0, end = 0;  // inputs [first, end)
    size_t weights = 0;          // index of the first weight
  };

  void set(const Axis& axis, Filter filter);
  const std::vector<Run>& runs() const { return runs_; }
  const float* weights(const Run& run) const { return weights_.data() + run.weights; }
  // The weights × 2^kFixedBits, rounded; only for bicubic.
  const int32_t* fixed() const { return fixed_.data(); }
  static constexpr int kFixedBits = 22;
  int64_t first() const { return first_; }  // inputs that any output needs
  int64_t end() const { return end_; }

 private:
  std::vector<Run> runs_;
  std::vector<float> weights_;
  std::vector<int32_t> fixed_;
  int64_t first_ = 0, end_ = 0;
};

// Output positions: value (x, y) of colour c goes to
// data[c * plane + start + x * step_x + y * step_y].
struct PlaneTarget {
  float* data = nullptr;
  int64_t plane = 0;
  int64_t start = 0;
  int64_t step_x = 1;
  int64_t step_y = 0;
};

class Resizer {
 public:
  // Starts an image, whose rows are RGB bytes. `colours`: 3 for RGB output, 1 for luma (ITU-R 601).
  void start(const Axis& x, const Axis& y, int64_t colours, const PlaneTarget& target,
             Filter filter = Filter::bilinear);
  // The needed inputs: give row() the rows [first_y, end_y) in order, each with its pixels
  // [first_x, end_x).
  int64_t first_x() const { return x_.first(); }
  int64_t end_x() const { return x_.end(); }
  int64_t first_y() const { return y_.first(); }
  int64_t end_y() const { return y_.end(); }
  void row(int64_t y, const uint8_t* rgb);

 private:
  template <typename Value>
  void add(int64_t y, const Value* values);
  void finish(size_t output);
  bool is_across_first() const { return filter_ == Filter::bicubic; }

  AxisTaps x_, y_;
  Filter filter_ = Filter::bilinear;
  int64_t colours_ = 3;
  PlaneTarget target_;
  size_t slots_ = 1;      // largest number of unfinished output rows
  size_t slot_size_ = 0;  // floats of a slot: an input row or, resized across first, an output row
  size_t next_ = 0;       // first output row that is not finished
  std::vector<float> sums_;
  std::vector<uint8_t> luma_;
  std::vector<int32_t> wide_;  // an input row, four numbers a pixel
  std::vector<float> line_;    // an output row, four numbers a pixel
};

}  // namespace tanren
