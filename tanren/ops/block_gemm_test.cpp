#include "tanren/ops/block_gemm.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <vector>

namespace tanren {
namespace {

at::Tensor numbers(int64_t rows, int64_t columns) {
  return at::arange(rows * columns).remainder(17).sub(8).view({rows, columns}).to(at::kBFloat16);
}

// b of [k, n] packed from itself or from its transpose; rows of `a` are padded to an even k.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, bool from_transpose, float start) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1), even = (k + 1) / 2 * 2;
  std::vector<uint32_t> packed(static_cast<size_t>(even / 2 * n), 0xffffffff);
  if (from_transpose) {
    const at::Tensor turned = b.t().contiguous();
    pack_columns(turned.const_data_ptr<c10::BFloat16>(), k, n, k, n, packed.data());
  } else {
    pack_rows(b.const_data_ptr<c10::BFloat16>(), n, k, n, packed.data());
  }
  const at::Tensor padded = at::zeros({m, even}, a.options());
  padded.narrow(1, 0, k).copy_(a);
  const at::Tensor c = at::full({m, n + 3}, start, at::kFloat);
  block_gemm({m, n, even, even, n, n + 3}, padded.const_data_ptr<c10::BFloat16>(), packed.data(),
             c.mutable_data_ptr<float>(), start != 0);
  end_block_gemm();
  EXPECT_TRUE(at::equal(c.narrow(1, n, 3), at::full({m, 3}, start, at::kFloat)));
  return c.narrow(1, 0, n);
}

TEST(BlockGemm, multiplies_exactly_what_fits_whole_numbers) {
  if (!has_block_gemm()) GTEST_SKIP() << "this processor has no bf16 products";
  for (const auto& [m, k, n] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 2, 1}, {3, 7, 5}, {128, 64, 256}, {130, 129, 66}, {64, 128, 33}}) {
    const at::Tensor a = numbers(m, k), b = numbers(k, n);
    const at::Tensor expected = at::mm(a.to(at::kFloat), b.to(at::kFloat));
    EXPECT_TRUE(at::equal(product(a, b, false, 0), expected)) << m << " " << k << " " << n;
    EXPECT_TRUE(at::equal(product(a, b, false, 2), expected + 2)) << m << " " << k << " " << n;
    if (k % 2 != 0) continue;
    EXPECT_TRUE(at::equal(product(a, b, true, 0), expected)) << m;
  }
}

}  // namespace
}  // namespace tanren
