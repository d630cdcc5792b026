#include "tanren/model/token_layers.h"

#include <ATen/ATen.h>

namespace tanren {

Embedding::Embedding(int64_t num, int64_t width, double initial_std, int64_t padding)
    : Module("Embedding"),
      weight_(register_parameter("weight", at::empty({num, width}).normal_(0, initial_std))),
      padding_(padding) {}

at::Tensor Embedding::forward(const at::Tensor& ids, bool sparse_gradient) const {
  return at::embedding(weight_, ids, padding_, /*scale_grad_by_freq=*/false, sparse_gradient);
}

LayerNorm::LayerNorm(int64_t width, double eps)
    : Module("LayerNorm"),
      eps_(eps),
      weight_(register_parameter("weight", at::ones({width}))),
      bias_(register_parameter("bias", at::zeros({width}))) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return at::layer_norm(x, weight_.sizes(), weight_, bias_, eps_);
}

Projection::Projection(int64_t in, int64_t out, double initial_std)
    : Module("Projection"),
      weight_(register_parameter("weight", at::empty({in, out}).normal_(0, initial_std))),
      bias_(register_parameter("bias", at::zeros({out}))) {}

at::Tensor Projection::forward(const at::Tensor& x) const {
  const at::Tensor flat = at::addmm(bias_, x.reshape({-1, x.size(-1)}), weight_);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight_.size(1);
  return flat.view(sizes);
}

}  // namespace tanren
