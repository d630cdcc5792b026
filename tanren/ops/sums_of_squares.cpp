#include "tanren/ops/sums_of_squares.h"

#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/parallel_for.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace tanren {

namespace {

constexpr int64_t kPieceSize = 1 << 16;  // elements that one thread sums

using Pair [[gnu::vector_size(2 * sizeof(double))]] = double;

template <class T>
Pair squares_of_two(const T* values) {
  // 16-bit dtypes convert to float alone.
  using Narrow = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Pair two{static_cast<double>(static_cast<Narrow>(values[0])),
                 static_cast<double>(static_cast<Narrow>(values[1]))};
  return two * two;
}

// Sixteen sums, so that none waits for the one before it.
template <class T>
double sum_of_squares(const T* values, int64_t size) {
  Pair a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) {
    a += squares_of_two(values + i);
    b += squares_of_two(values + i + 2);
    c += squares_of_two(values + i + 4);
    d += squares_of_two(values + i + 6);
    e += squares_of_two(values + i + 8);
    f += squares_of_two(values + i + 10);
    g += squares_of_two(values + i + 12);
    h += squares_of_two(values + i + 14);
  }
  for (; i + 2 <= size; i += 2) a += squares_of_two(values + i);
  const Pair all = ((a + b) + (c + d)) + ((e + f) + (g + h));
  double sum = all[0] + all[1];
  if (i < size) {
    const auto last = static_cast<double>(values[i]);
    sum += last * last;
  }
  return sum;
}

// A part of a range.
struct Piece {
  size_t range = 0;
  int64_t begin = 0, size = 0;  // in the range's tensor
  int64_t before = 0;           // elements of the pieces before it
  double sum = 0;
};

double sum_of_squares(const at::Tensor& flat, const Piece& piece) {
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, flat.scalar_type(), "sums_of_squares",
      [&] { sum = sum_of_squares(flat.const_data_ptr<scalar_t>() + piece.begin, piece.size); });
  return sum;
}

std::vector<double> sums_on_cpu(at::TensorList flat, const std::vector<FlatRange>& ranges) {
  const OperatorRecord record("tanren::global_norm", flat);
  std::vector<Piece> pieces;
  pieces.reserve(ranges.size());
  int64_t total = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const FlatRange& range = ranges[i];
    if (range.size == 0 || is_dry(flat[range.tensor])) continue;
    for (int64_t done = 0; done < range.size; done += kPieceSize) {
      const int64_t size = std::min(kPieceSize, range.size - done);
      pieces.push_back({.range = i, .begin = range.begin + done, .size = size, .before = total});
      total += size;
    }
  }
  // Threads share the elements, since pieces differ in size. A piece belongs to the thread in whose
  // part it begins.
  parallel_for(0, total, kPieceSize, [&](int64_t from, int64_t to) {
    auto piece = std::lower_bound(pieces.begin(), pieces.end(), from,
                                  [](const Piece& p, int64_t place) { return p.before < place; });
    for (; piece != pieces.end() && piece->before < to; ++piece) {
      piece->sum = sum_of_squares(flat[ranges[piece->range].tensor], *piece);
    }
  });
  std::vector<double> sums(ranges.size(), 0.0);
  for (const Piece& piece : pieces) sums[piece.range] += piece.sum;
  return sums;
}

at::Tensor sums_on_device(at::TensorList flat, const std::vector<FlatRange>& ranges,
                          at::Device device) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(at::kDouble).device(device);
  std::vector<at::Tensor> values;
  for (const FlatRange& range : ranges) {
    if (range.size > 0) values.push_back(flat[range.tensor].narrow(0, range.begin, range.size));
  }
  if (values.empty()) return at::zeros({static_cast<int64_t>(ranges.size())}, options);
  std::vector<at::Tensor> norms = at::_foreach_norm(values, 2, at::kDouble);
  if (values.size() < ranges.size()) {
    const at::Tensor zero = at::zeros({}, options);
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].size == 0) norms.insert(norms.begin() + static_cast<std::ptrdiff_t>(i), zero);
    }
  }
  return at::stack(norms).square_();
}

}  // namespace

SumsOfSquares sums_of_squares(at::TensorList flat, const std::vector<FlatRange>& ranges,
                              at::Device device) {
  if (device.is_cpu()) return {.on_host = sums_on_cpu(flat, ranges)};
  return {.on_device = sums_on_device(flat, ranges, device)};
}

}  // namespace tanren
