#include "tanren/ops/int8_product.h"

#include "tanren/ops/int8_gemm.h"
#include "tanren/ops/int8_rows.h"
#include "tanren/ops/parallel_for.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace tanren {
namespace {

constexpr int64_t kProductRows = 64;
// Blocks of rows that a thread multiplies by a panel while that is in its cache.
constexpr int64_t kBlocksAPanel = 4;
// Multiply-adds and bytes that are worth a thread.
constexpr int64_t kProductGrain = int64_t{1} << 18, kFillGrain = int64_t{1} << 15;

int64_t num_parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Rounds up, because oneDNN makes a kernel for each number of rows: fewer numbers, fewer kernels.
int64_t rows_of_kernel(int64_t rows) {
  if (int8_kernel() != Int8Kernel::onednn) return rows;
  if (rows > 16) return num_parts(rows, 16) * 16;
  int64_t power = 1;
  while (power < rows) power *= 2;
  return power;
}

// Rows of bytes with their scales. Always whole blocks, so that a kernel may read more rows than
// there are.
struct ByteRows {
  ByteRows(int64_t rows, int64_t depth)
      : bytes(static_cast<size_t>(num_parts(rows, kProductRows) * kProductRows * depth)),
        scales(static_cast<size_t>(rows)) {}
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
};

// One block of the result: rows of `bytes` times one panel.
template <class T>
class BlockProduct {
 public:
  BlockProduct(const PackedWeight& weight, int32_t zero_point, const float* bias, T* out)
      : weight_(weight),
        zero_point_(zero_point),
        bias_(bias),
        out_(out),
        group_(weight.groups() == 1 ? weight.depth() : weight.in / weight.groups()),
        sums_(kProductRows * kPanelWidth),
        zeros_(kPanelWidth),
        totals_(kProductRows * kPanelWidth) {
    if (group_ > kMaxInt8Depth) long_sums_.resize(kProductRows * kPanelWidth);
  }
  ~BlockProduct() { end_int8_gemm(); }
  BlockProduct(const BlockProduct&) = delete;
  BlockProduct& operator=(const BlockProduct&) = delete;

  // The rows [first, first + rows) of the result; `bytes` and `scales` are those of these rows.
  void run(int64_t first, int64_t rows, const uint8_t* bytes, const float* scales, int64_t panel) {
    const int64_t column = panel * kPanelWidth;
    const int64_t width = std::min(kPanelWidth, weight_.panels.size(0) - column);
    const int64_t columns = std::min(width, weight_.out - column);
    const auto* packed = weight_.panels.const_data_ptr<int8_t>() + column * weight_.depth();
    const float* bias = bias_ == nullptr ? nullptr : bias_ + column;
    T* const out = out_ + first * weight_.out + column;
    Int8Shape shape{rows_of_kernel(rows), width, group_, weight_.depth(), width, kPanelWidth};
    if (weight_.groups() == 1 && group_ <= kMaxInt8Depth) {
      const auto* sums_of_columns = weight_.sums.const_data_ptr<int32_t>() + column;
      for (int64_t i = 0; i < columns; ++i) zeros_[i] = zero_point_ * sums_of_columns[i];
      int8_gemm(shape, bytes, packed, sums_.data(), /*add=*/false);
      for (int64_t r = 0; r < rows; ++r) {
        finish_sums(sums_.data() + r * kPanelWidth, zeros_.data(),
                    weight_.scales.const_data_ptr<float>() + column, scales[r], bias, columns,
                    out + r * weight_.out);
      }
      return;
    }
    for (int64_t group = 0; group < weight_.groups(); ++group) {
      const int64_t from = group * group_, at = group * weight_.out + column;
      const ColumnScales of{weight_.sums.const_data_ptr<int32_t>() + at,
                            weight_.scales.const_data_ptr<float>() + at, zero_point_};
      if (group_ > kMaxInt8Depth) {
        sum_pieces(shape, bytes + from, packed + from * width);
        for (int64_t r = 0; r < rows; ++r) {
          scale_sums(long_sums_.data() + r * kPanelWidth, of, columns, group > 0, total(r));
        }
      } else {
        int8_gemm(shape, bytes + from, packed + from * width, sums_.data(), /*add=*/false);
        for (int64_t r = 0; r < rows; ++r) {
          scale_sums(sums_.data() + r * kPanelWidth, of, columns, group > 0, total(r));
        }
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      finish_row(total(r), scales[r], bias, columns, out + r * weight_.out);
    }
  }

 private:
  float* total(int64_t row) { return totals_.data() + row * kPanelWidth; }

  // Adds up sums that are too large for int32, from pieces whose sums fit.
  void sum_pieces(Int8Shape shape, const uint8_t* bytes, const int8_t* packed) {
    std::fill(long_sums_.begin(), long_sums_.end(), 0);
    for (int64_t from = 0; from < group_; from += kMaxInt8Depth) {
      shape.k = std::min(kMaxInt8Depth, group_ - from);
      int8_gemm(shape, bytes + from, packed + from * shape.b_row, sums_.data(), /*add=*/false);
      for (size_t i = 0; i < sums_.size(); ++i) long_sums_[i] += sums_[i];
    }
  }

  const PackedWeight& weight_;
  int32_t zero_point_;
  const float* bias_;
  T* out_;
  int64_t group_;
  std::vector<int32_t> sums_, zeros_;
  std::vector<int64_t> long_sums_;
  std::vector<float> totals_;
};

template <class T>
void product_of_rows(const FillRows& fill, const PackedWeight& weight, int32_t zero_point,
                     const float* bias, T* out, int64_t rows) {
  const int64_t depth = weight.depth();
  const int64_t blocks = num_parts(rows, kProductRows);
  const int64_t panels = num_parts(weight.out, kPanelWidth);
  const auto rows_of = [&](int64_t block) {
    return std::min(kProductRows, rows - block * kProductRows);
  };
  if (blocks >= at::get_num_threads()) {
    parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      const int64_t most = std::min(kBlocksAPanel, end - begin);
      ByteRows own(most * kProductRows, depth);
      BlockProduct<T> multiply(weight, zero_point, bias, out);
      for (int64_t from = begin; from < end; from += most) {
        const int64_t to = std::min(end, from + most), start = from * kProductRows;
        fill(start, std::min(rows, to * kProductRows) - start, depth, own.bytes.data(),
             own.scales.data());
        for (int64_t panel = 0; panel < panels; ++panel) {
          for (int64_t block = from; block < to; ++block) {
            const int64_t first = block * kProductRows, at = first - start;
            multiply.run(first, rows_of(block), own.bytes.data() + at * depth,
                         own.scales.data() + at, panel);
          }
        }
      }
    });
    return;
  }
  // With few rows, the threads share the panels, and each panel is read once.
  ByteRows all(rows, depth);
  parallel_for(0, rows, std::max<int64_t>(1, kFillGrain / depth), [&](int64_t begin, int64_t end) {
    fill(begin, end - begin, depth, all.bytes.data() + begin * depth, all.scales.data() + begin);
  });
  const int64_t work = std::min(rows, kProductRows) * depth * kPanelWidth;
  parallel_for(0, panels * blocks, std::max<int64_t>(1, kProductGrain / work),
               [&](int64_t begin, int64_t end) {
                 BlockProduct<T> multiply(weight, zero_point, bias, out);
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t block = i % blocks, first = block * kProductRows;
                   multiply.run(first, rows_of(block), all.bytes.data() + first * depth,
                                all.scales.data() + first, i / blocks);
                 }
               });
}

}  // namespace

void int8_product(const FillRows& fill, const PackedWeight& weight, int32_t zero_point,
                  const at::Tensor& bias, const at::Tensor& out) {
  const int64_t rows = out.numel() / weight.out;
  if (rows == 0) return;
  const float* added = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  if (out.scalar_type() == at::kBFloat16) {
    product_of_rows(fill, weight, zero_point, added, out.mutable_data_ptr<c10::BFloat16>(), rows);
  } else {
    product_of_rows(fill, weight, zero_point, added, out.mutable_data_ptr<float>(), rows);
  }
}

}  // namespace tanren
