// One pass over memory per update of a parameter on the CPU: weight, gradient and state of each
// element are read and written once. The tensors of one call have the same elements in the same
// order (same_layout); nothing is checked here. Called by the element rules; runs on torch's
// threads (parallel_for).
#pragma once

#include <cstdint>

namespace tanren {

// The memory of one parameter; unused parts of the state are null.
template <typename T>
struct Elements {
  int64_t count = 0;
  T* parameter = nullptr;
  const T* gradient = nullptr;
  T* first = nullptr;
  T* second = nullptr;
  T* third = nullptr;
};

struct RmspropNumbers {
  double learning_rate, weight_decay, alpha, eps, momentum;
  bool is_centered;
};
// first: average of squares; second: momentum (only if it is not 0); third: average (if centered).
template <typename T>
void rmsprop_elements(const Elements<T>& elements, const RmspropNumbers& numbers);

struct AdagradNumbers {
  double learning_rate, weight_decay, eps;
};
// first: sum of squares.
template <typename T>
void adagrad_elements(const Elements<T>& elements, const AdagradNumbers& numbers);

struct MomentNumbers {
  double beta1, beta2, eps;
  double weight_decay;   // × parameter, added to the gradient
  double kept;           // × parameter before the update: decoupled decay
  double gradient_rate;  // × gradient / denominator (nadam)
  double momentum_rate;  // × first moment / denominator
  double second_scale;   // × second moment, under the root
  bool is_adaptive;      // false: denominator 1 (radam's first updates)
};
// Adam's family: first and second moment.
template <typename T>
void moment_elements(const Elements<T>& elements, const MomentNumbers& numbers);

struct LionNumbers {
  double learning_rate, kept, beta1, beta2;
};
// first: momentum.
template <typename T>
void lion_elements(const Elements<T>& elements, const LionNumbers& numbers);

}  // namespace tanren
