// Resizer: bilinear resize with antialiasing of an image that arrives row by row. Each row is added to
// the output rows it belongs to, so that no more than the rows in work are held. The weights are
// PIL's (a triangle as wide as the step between outputs, cut at the image's edge, then normalised);
// between the two directions nothing is rounded, so that results lie within one 8-bit level of PIL's,
// which rounds there. Torch-free. For one thread at a time; its memory is kept from image to image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tanren {

// Where the outputs of one direction look: output i at origin + (i + 0.5) * step in input pixels,
// of which only [low, high) exist. Outputs whose centre lies outside have no pixels: they are 0.
struct Axis {
  int64_t outputs = 0;
  double origin = 0;
  double step = 1;
  int64_t low = 0, high = 0;

  // The same outputs on an input of `size` pixels that is read from its other end, in reverse.
  Axis mirrored(int64_t size) const;
  // The same outputs on an input that was divided by `divisor`.
  Axis divided(int64_t divisor) const;
};

// Which inputs make an output, and how much of each.
class AxisTaps {
 public:
  struct Run {
    int64_t first = 0, end = 0;  // inputs [first, end)
    size_t weights = 0;          // index of the first weight
  };

  void set(const Axis& axis);
  const std::vector<Run>& runs() const { return runs_; }
  const float* weights(const Run& run) const { return weights_.data() + run.weights; }
  int64_t first() const { return first_; }  // inputs that any output needs
  int64_t end() const { return end_; }

 private:
  std::vector<Run> runs_;
  std::vector<float> weights_;
  int64_t first_ = 0, end_ = 0;
};

// Where the outputs go: value (x, y) of colour c at data[c * plane + start + x * step_x + y * step_y].
struct PlaneTarget {
  float* data = nullptr;
  int64_t plane = 0;
  int64_t start = 0;
  int64_t step_x = 1;
  int64_t step_y = 0;
};

class Resizer {
 public:
  // Starts an image. Its rows are RGB bytes; 3 colours come out, or their luma (ITU-R 601) as 1.
  void start(const Axis& x, const Axis& y, int64_t colours, const PlaneTarget& target);
  // The inputs that are needed: rows [first_y, end_y) are to be given in order, each with its pixels
  // [first_x, end_x).
  int64_t first_x() const { return x_.first(); }
  int64_t end_x() const { return x_.end(); }
  int64_t first_y() const { return y_.first(); }
  int64_t end_y() const { return y_.end(); }
  void row(int64_t y, const uint8_t* rgb);

 private:
  void finish(size_t output);

  AxisTaps x_, y_;
  int64_t colours_ = 3;
  PlaneTarget target_;
  size_t slots_ = 1;      // output rows in work at most
  size_t slot_size_ = 0;  // floats of a slot
  size_t next_ = 0;       // first output row that is not finished
  std::vector<float> sums_;
  std::vector<uint8_t> luma_;
  std::vector<float> line_;
};

}  // namespace tanren
