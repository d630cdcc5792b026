#include "tanren/ops/attention_bf16.h"

#include "tanren/ops/block_gemm.h"
#include "tanren/ops/rows.h"

#include <algorithm>

namespace tanren {
namespace {

int64_t even(int64_t count) { return (count + 1) / 2 * 2; }

// to [size, rows rounded up to even] = from [rows, size] transposed; the last column is zeros if
// rows is odd.
void turn(const c10::BFloat16* from, int64_t stride, int64_t rows, int64_t size,
          c10::BFloat16* to) {
  const int64_t width = even(rows);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t r = 0; r < rows; ++r) to[i * width + r] = from[r * stride + i];
    if (rows < width) to[i * width + rows] = c10::BFloat16(0.0f);
  }
}

}  // namespace

Bf16Attention::Bf16Attention(int64_t length, int64_t size, int64_t block_rows, bool causal)
    : length_(length),
      size_(size),
      block_rows_(std::min(block_rows, length)),
      cols_(even(length)),
      causal_(causal) {
  const auto block = static_cast<size_t>(block_rows_ * cols_);
  const auto head = static_cast<size_t>(cols_ * size_);
  for (auto* memory : {&scores_, &slopes_}) memory->resize(block);
  for (auto* memory : {&weights_, &gradients_}) memory->resize(block);
  for (auto* memory : {&k_sum_, &v_sum_}) memory->resize(head);
  for (auto* memory : {&first_packed_, &second_packed_, &key_rows_}) memory->resize(head / 2);
  const auto rows = static_cast<size_t>(even(block_rows_));
  block_packed_.resize(rows / 2 * static_cast<size_t>(std::max(cols_, size_)));
  product_.resize(rows * static_cast<size_t>(size_));
  turned_.resize(rows * static_cast<size_t>(size_));
  deltas_.resize(rows);
}

int64_t Bf16Attention::columns_of(int64_t first, int64_t rows) const {
  return causal_ ? even(first + rows) : cols_;
}

void Bf16Attention::forward(const HeadView& head, const BlockOf& block_of, c10::BFloat16* out,
                            int64_t out_stride, float* log_sums) {
  uint32_t *keys = first_packed_.data(), *values = second_packed_.data();
  pack_columns(head.k, head.stride, length_, size_, cols_, keys);
  pack_rows(head.v, head.stride, length_, size_, values);
  for (int64_t first = 0; first < length_; first += block_rows_) {
    const int64_t rows = std::min(block_rows_, length_ - first), cols = columns_of(first, rows);
    const AttentionBlock block = block_of(first, rows, cols);
    block_gemm({rows, cols, size_, head.stride, cols_, cols}, head.q + first * head.stride, keys,
               scores_.data(), false);
    attention_weights(block, scores_.data(), weights_.data(), log_sums + first);
    block_gemm({rows, size_, cols, cols, size_, size_}, weights_.data(), values, product_.data(),
               false);
    for (int64_t r = 0; r < rows; ++r) {
      store_row(product_.data() + r * size_, 1, size_, out + (first + r) * out_stride);
    }
  }
}

void Bf16Attention::backward(const HeadView& head, const BlockOf& block_of,
                             const c10::BFloat16* out, const c10::BFloat16* gradient,
                             int64_t out_stride, const float* log_sums, c10::BFloat16* q_gradient,
                             c10::BFloat16* k_gradient, c10::BFloat16* v_gradient) {
  uint32_t *keys = first_packed_.data(), *values = second_packed_.data();
  pack_columns(head.k, head.stride, length_, size_, cols_, keys);
  pack_columns(head.v, head.stride, length_, size_, cols_, values);
  pack_rows(head.k, head.stride, length_, size_, key_rows_.data());
  std::fill(k_sum_.begin(), k_sum_.end(), 0.0f);
  std::fill(v_sum_.begin(), v_sum_.end(), 0.0f);
  for (int64_t first = 0; first < length_; first += block_rows_) {
    const int64_t rows = std::min(block_rows_, length_ - first), cols = columns_of(first, rows);
    const AttentionBlock block = block_of(first, rows, cols);
    const c10::BFloat16* own_q = head.q + first * head.stride;
    const c10::BFloat16* own_gradient = gradient + first * out_stride;
    for (int64_t r = 0; r < rows; ++r) {
      const c10::BFloat16 *g = own_gradient + r * out_stride, *o = out + (first + r) * out_stride;
      float sum = 0;
      for (int64_t i = 0; i < size_; ++i)
        sum += static_cast<float>(g[i]) * static_cast<float>(o[i]);
      deltas_[static_cast<size_t>(r)] = sum;
    }
    block_gemm({rows, cols, size_, head.stride, cols_, cols}, own_q, keys, scores_.data(), false);
    block_gemm({rows, cols, size_, out_stride, cols_, cols}, own_gradient, values, slopes_.data(),
               false);
    attention_gradient(block, scores_.data(), slopes_.data(), log_sums + first, deltas_.data(),
                       weights_.data(), gradients_.data());
    // The gradient of q: slopes × k.
    block_gemm({rows, size_, cols, cols, size_, size_}, gradients_.data(), key_rows_.data(),
               product_.data(), false);
    for (int64_t r = 0; r < rows; ++r) {
      store_row(product_.data() + r * size_, 1, size_, q_gradient + (first + r) * head.stride);
    }
    // The gradients of k and v, transposed: qᵀ × slopes and gradientᵀ × weights.
    const BlockShape turned{size_, cols, even(rows), even(rows), cols, cols_};
    turn(own_q, head.stride, rows, size_, turned_.data());
    pack_rows(gradients_.data(), cols, rows, cols, block_packed_.data());
    block_gemm(turned, turned_.data(), block_packed_.data(), k_sum_.data(), true);
    turn(own_gradient, out_stride, rows, size_, turned_.data());
    pack_rows(weights_.data(), cols, rows, cols, block_packed_.data());
    block_gemm(turned, turned_.data(), block_packed_.data(), v_sum_.data(), true);
  }
  for (int64_t r = 0; r < length_; ++r) {
    for (int64_t i = 0; i < size_; ++i) {
      k_gradient[r * head.stride + i] = k_sum_[static_cast<size_t>(i * cols_ + r)];
      v_gradient[r * head.stride + i] = v_sum_[static_cast<size_t>(i * cols_ + r)];
    }
  }
}

}  // namespace tanren
