// The loops of cross_entropy.h over raw memory. Parallel over rows. Called by cross_entropy.cpp and
// linear_cross_entropy.cpp.
#pragma once

#include <cstdint>

namespace tanren {

constexpr int64_t kIgnoredLabel = -100;

// For each row of logits [rows, classes]: its maximum, sums = Σ exp(logit - maximum) and
// losses = maximum - logits[label] + log sum; all 0 if the label is ignored. T: float, double,
// c10::Half, c10::BFloat16; Acc: double or float.
template <typename T, typename Acc>
void cross_entropy_rows(const T* logits, const int64_t* labels, int64_t rows, int64_t classes,
                        Acc* maxima, Acc* sums, Acc* losses);
// gradient = seed * (softmax - one hot); 0 if the label is ignored.
template <typename T, typename Acc>
void cross_entropy_gradient(const T* logits, const int64_t* labels, const Acc* maxima,
                            const Acc* sums, Acc seed, int64_t rows, int64_t classes, T* gradient);

}  // namespace tanren
