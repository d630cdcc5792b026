#include "tanren/data/row_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

constexpr size_t kBlockNumbers = size_t{1} << 20;  // numbers

}  // namespace

RowBlocks::RowBlocks(int64_t width)
    : width_(static_cast<size_t>(width)),
      block_rows_(std::max<size_t>(1, kBlockNumbers / std::max<size_t>(1, width_))) {}

float* RowBlocks::add() {
  if (blocks_.empty() || blocks_.back().size() == block_rows_ * width_) {
    blocks_.emplace_back();
    blocks_.back().reserve(block_rows_ * width_);
  }
  std::vector<float>& block = blocks_.back();
  block.resize(block.size() + width_);
  ++rows_;
  return block.data() + (block.size() - width_);
}

at::Tensor RowBlocks::take() {
  const int64_t rows = std::exchange(rows_, 0);
  at::Tensor all = at::empty({rows, static_cast<int64_t>(width_)}, at::TensorOptions(at::kFloat));
  auto* to = all.mutable_data_ptr<float>();
  for (std::vector<float>& block : blocks_) {
    to = std::copy(block.begin(), block.end(), to);
    std::vector<float>().swap(block);
  }
  blocks_.clear();
  return all;
}

}  // namespace tanren
