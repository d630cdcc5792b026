#include "tanren/ops/global_norm.h"

#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/parallel_for.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

namespace tanren {

namespace {

constexpr int64_t kChunk = 1 << 16;  // elements that a thread takes at a time
constexpr int64_t kBlock = 1024;     // elements whose squares are summed in lanes, then in double
constexpr int kLanes = 16;

template <class Lane>
struct Vector {
  using Lanes [[gnu::vector_size(kLanes * sizeof(Lane))]] = Lane;
};

template <class Lane, class T>
double sum_of_squares(const T* values, int64_t size) {
  using Lanes = typename Vector<Lane>::Lanes;
  double sum = 0;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, size);
    Lanes squares{};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      Lanes some;
      if constexpr (std::is_same_v<T, Lane>) {
        std::memcpy(&some, values + i, sizeof(some));
      } else {
        for (int lane = 0; lane < kLanes; ++lane) some[lane] = static_cast<Lane>(values[i + lane]);
      }
      squares += some * some;
    }
    for (; i < end; ++i) squares[0] += static_cast<Lane>(values[i]) * static_cast<Lane>(values[i]);
    for (int lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(squares[lane]);
  }
  return sum;
}

// The chunks' sums are added in order, so the result is the same for any number of threads. `wide`:
// each square is a double.
double sum_of_squares(const at::Tensor& gradient, bool wide) {
  const at::Tensor values =
      gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous();
  const OperatorRecord record("tanren::global_norm", values);
  const int64_t size = values.numel();
  std::vector<double> sums(static_cast<size_t>((size + kChunk - 1) / kChunk));
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, values.scalar_type(), "global_norm", [&] {
        using Narrow = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
        const auto* first = values.const_data_ptr<scalar_t>();
        parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t from, int64_t to) {
          for (int64_t i = from; i < to; ++i) {
            const int64_t length = std::min(kChunk, size - i * kChunk);
            sums[static_cast<size_t>(i)] = wide
                                               ? sum_of_squares<double>(first + i * kChunk, length)
                                               : sum_of_squares<Narrow>(first + i * kChunk, length);
          }
        });
      });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

double norm_on_cpu(at::TensorList gradients, bool wide) {
  double sum = 0;
  for (const at::Tensor& gradient : gradients) {
    if (!is_dry(gradient)) sum += sum_of_squares(gradient, wide);
  }
  return std::sqrt(sum);
}

}  // namespace

at::Tensor global_norm(at::TensorList gradients) {
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  const at::NoGradGuard no_grad;
  const at::Tensor& first = gradients[0];
  const bool narrow = std::any_of(gradients.begin(), gradients.end(),
                                  [](const at::Tensor& one) { return one.element_size() < 4; });
  const auto dtype = narrow ? at::kFloat : first.scalar_type();
  if (!first.is_cpu()) {
    const auto wider = narrow ? std::optional(at::kFloat) : std::nullopt;
    return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2, wider)), 2);
  }
  const double norm = norm_on_cpu(gradients, /*wide=*/false);
  return at::full({}, norm, first.options().dtype(dtype).requires_grad(false));
}

double exact_norm(at::TensorList gradients) {
  if (gradients.empty()) return 0;
  if (gradients[0].is_cpu()) return norm_on_cpu(gradients, /*wide=*/true);
  const at::NoGradGuard no_grad;
  const auto norms = at::_foreach_norm(gradients, 2, at::kDouble);
  return at::linalg_vector_norm(at::stack(norms), 2).item<double>();
}

}  // namespace tanren
