// The model that the hand-written graph (hand_graph.cpp) and an equal torch module compute. It
// scores each next token of TokenData, uses the embedding as the output's weight, and has two terms
// that are counted differently. For tests.
#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace tanren::testing {

inline constexpr int64_t kHandVocab = 23, kHandWidth = 8;
inline constexpr double kHandActivity = 0.01;  // weight of the second term

struct HandWeights {
  at::Tensor embedding;     // [vocab, width], read twice
  at::Tensor weight, bias;  // of the hidden layer
  at::Tensor scale, shift;  // of a batch norm over all positions; undefined: there is none
};

struct HandStatistics {
  at::Tensor mean, variance, count;
};

struct HandResult {
  at::Tensor cross_entropy;  // summed over tokens
  at::Tensor activity;       // summed over samples
  at::Tensor scores;         // [n, T, vocab]
};

// Training moves `statistics` in place. `hidden`: the dtype that the hidden layer computes in.
inline HandResult hand_forward(const HandWeights& w, HandStatistics& statistics,
                               const at::Tensor& inputs, const at::Tensor& labels, bool trains,
                               at::ScalarType hidden) {
  at::Tensor x = at::embedding(w.embedding, inputs).to(hidden);
  x = at::linear(x, w.weight.to(hidden), w.bias.to(hidden));
  if (w.scale.defined()) {
    x = at::batch_norm(x.reshape({-1, kHandWidth}), w.scale, w.shift, statistics.mean,
                       statistics.variance, trains, 0.1, 1e-5, false)
            .reshape(x.sizes());
    if (trains) statistics.count.add_(1);
  }
  x = x.tanh();
  const at::Tensor scores = at::linear(x, w.embedding.to(hidden)).to(w.embedding.scalar_type());
  return {.cross_entropy = at::cross_entropy_loss(scores.reshape({-1, kHandVocab}),
                                                  labels.reshape({-1}), {}, at::Reduction::Sum,
                                                  /*ignore_index=*/-100),
          .activity = x.to(w.embedding.scalar_type()).square().sum() * 0.5,
          .scores = scores};
}

}  // namespace tanren::testing
