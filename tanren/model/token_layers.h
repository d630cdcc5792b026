// The layers of models that read tokens, with Hugging Face's parameter names and layouts. They are
// initialised as in GPT-2: weights normal around 0, biases 0. Modules are not thread-safe.
#pragma once

#include "tanren/model/layers.h"

namespace tanren {

// ids int64 [n, T] → [n, T, width]: rows of `weight` [num, width]. The row `padding` gets no
// gradient from this layer; -1: no such row.
class Embedding : public Module {
 public:
  Embedding(int64_t num, int64_t width, double initial_std, int64_t padding = -1);
  // With sparse_gradient the gradient holds only the rows that were read. For a weight that also
  // gets a dense gradient from elsewhere, as from a tied head.
  at::Tensor forward(const at::Tensor& ids, bool sparse_gradient = false) const;
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_;
  int64_t padding_;
};

// Normalises the last dim (Ba et al., 2016). `weight`, `bias` [width].
class LayerNorm : public Module {
 public:
  LayerNorm(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  double eps_;
  at::Tensor weight_, bias_;
};

// y = x W + b over the last dim, with Linear's W transposed: Hugging Face's Conv1D.
// `weight` [in, out], `bias` [out].
class Projection : public Module {
 public:
  Projection(int64_t in, int64_t out, double initial_std);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

}  // namespace tanren
