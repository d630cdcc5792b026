#include "tanren/optimizer/element_kernels.h"
#include "tanren/ops/parallel_for.h"

#include <algorithm>
#include <cmath>

namespace tanren {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which one thread is faster

// Runs body(begin, end) over pieces of [0, count).
template <typename Body>
void over(int64_t count, const Body& body) {
  parallel_for(0, count, kGrain, body);
}

template <bool kHasMomentum, bool kIsCentered, typename T>
void rmsprop_piece(const Elements<T>& e, const RmspropNumbers& numbers, int64_t begin,
                   int64_t end) {
  const T rate = static_cast<T>(numbers.learning_rate), eps = static_cast<T>(numbers.eps);
  const T decay = static_cast<T>(numbers.weight_decay), alpha = static_cast<T>(numbers.alpha);
  const T fresh = static_cast<T>(1 - numbers.alpha), momentum = static_cast<T>(numbers.momentum);
  T* __restrict p = e.parameter;
  const T* __restrict g = e.gradient;
  T* __restrict squares = e.first;
  T* __restrict buffer = e.second;
  T* __restrict mean = e.third;
  for (int64_t i = begin; i < end; ++i) {
    const T gradient = g[i] + decay * p[i];
    squares[i] = alpha * squares[i] + fresh * gradient * gradient;
    T variance = squares[i];
    if constexpr (kIsCentered) {
      mean[i] += fresh * (gradient - mean[i]);
      // Rounding may make a zero variance negative; its root would be NaN.
      const T centered = variance - mean[i] * mean[i];
      variance = centered < T(0) ? T(0) : centered;
    }
    T update = gradient / (std::sqrt(variance) + eps);
    if constexpr (kHasMomentum) update = buffer[i] = momentum * buffer[i] + update;
    p[i] -= rate * update;
  }
}

}  // namespace

template <typename T>
void rmsprop_elements(const Elements<T>& e, const RmspropNumbers& numbers) {
  auto* piece = rmsprop_piece<false, false, T>;
  if (numbers.momentum != 0) piece = rmsprop_piece<true, false, T>;
  if (numbers.is_centered) piece = rmsprop_piece<false, true, T>;
  if (numbers.momentum != 0 && numbers.is_centered) piece = rmsprop_piece<true, true, T>;
  over(e.count, [&](int64_t begin, int64_t end) { piece(e, numbers, begin, end); });
}

template <typename T>
void adagrad_elements(const Elements<T>& e, const AdagradNumbers& numbers) {
  const T rate = static_cast<T>(numbers.learning_rate), eps = static_cast<T>(numbers.eps);
  const T decay = static_cast<T>(numbers.weight_decay);
  over(e.count, [=](int64_t begin, int64_t end) {
    T* __restrict p = e.parameter;
    const T* __restrict g = e.gradient;
    T* __restrict sum = e.first;
    for (int64_t i = begin; i < end; ++i) {
      const T gradient = g[i] + decay * p[i];
      sum[i] += gradient * gradient;
      p[i] -= rate * gradient / (std::sqrt(sum[i]) + eps);
    }
  });
}

template <typename T>
void moment_elements(const Elements<T>& e, const MomentNumbers& numbers) {
  const T decay = static_cast<T>(numbers.weight_decay), kept = static_cast<T>(numbers.kept);
  const T fresh1 = static_cast<T>(1 - numbers.beta1), fresh2 = static_cast<T>(1 - numbers.beta2);
  const T beta2 = static_cast<T>(numbers.beta2), eps = static_cast<T>(numbers.eps);
  const T by_gradient = static_cast<T>(numbers.gradient_rate);
  const T by_momentum = static_cast<T>(numbers.momentum_rate);
  const T scale = static_cast<T>(numbers.second_scale);
  const bool is_adaptive = numbers.is_adaptive;
  over(e.count, [=](int64_t begin, int64_t end) {
    T* __restrict p = e.parameter;
    const T* __restrict g = e.gradient;
    T* __restrict first = e.first;
    T* __restrict second = e.second;
    for (int64_t i = begin; i < end; ++i) {
      const T gradient = g[i] + decay * p[i];
      first[i] += fresh1 * (gradient - first[i]);
      second[i] = beta2 * second[i] + fresh2 * gradient * gradient;
      const T root = std::sqrt(second[i] * scale) + eps;
      const T denominator = is_adaptive ? root : T(1);
      p[i] = kept * p[i] - (by_gradient * gradient + by_momentum * first[i]) / denominator;
    }
  });
}

template <typename T>
void lion_elements(const Elements<T>& e, const LionNumbers& numbers) {
  const T rate = static_cast<T>(numbers.learning_rate), kept = static_cast<T>(numbers.kept);
  const T beta1 = static_cast<T>(numbers.beta1), fresh1 = static_cast<T>(1 - numbers.beta1);
  const T beta2 = static_cast<T>(numbers.beta2), fresh2 = static_cast<T>(1 - numbers.beta2);
  over(e.count, [=](int64_t begin, int64_t end) {
    T* __restrict p = e.parameter;
    const T* __restrict g = e.gradient;
    T* __restrict momentum = e.first;
    for (int64_t i = begin; i < end; ++i) {
      const T direction = beta1 * momentum[i] + fresh1 * g[i];
      const T sign = static_cast<T>(direction > T(0)) - static_cast<T>(direction < T(0));
      momentum[i] = beta2 * momentum[i] + fresh2 * g[i];
      p[i] = kept * p[i] - rate * sign;
    }
  });
}

template void rmsprop_elements(const Elements<float>&, const RmspropNumbers&);
template void rmsprop_elements(const Elements<double>&, const RmspropNumbers&);
template void adagrad_elements(const Elements<float>&, const AdagradNumbers&);
template void adagrad_elements(const Elements<double>&, const AdagradNumbers&);
template void moment_elements(const Elements<float>&, const MomentNumbers&);
template void moment_elements(const Elements<double>&, const MomentNumbers&);
template void lion_elements(const Elements<float>&, const LionNumbers&);
template void lion_elements(const Elements<double>&, const LionNumbers&);

}  // namespace tanren
