// RowBlocks: rows of fp32 numbers whose count is not known yet. They lie in blocks, which are freed
// one by one when the tensor is made, so that all rows are never in memory twice. Called by csv.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tanren {

class RowBlocks {
 public:
  explicit RowBlocks(int64_t width);

  // Adds a row and returns its `width` numbers. The caller fills them in before the next add().
  float* add();
  int64_t rows() const { return rows_; }
  // Returns the rows as a tensor [rows(), width] and removes them from this object.
  at::Tensor take();

 private:
  size_t width_, block_rows_;
  int64_t rows_ = 0;
  std::vector<std::vector<float>> blocks_;
};

}  // namespace tanren
