#include "tanren/model/token_layers.h"

#include "tanren/dry/dry_scope.h"
#include "tanren/model/init.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tanren {

Embedding::Embedding(int64_t num, int64_t width, double initial_std, int64_t padding)
    : Module("Embedding"),
      weight_(register_parameter("weight", draw_normal(at::empty({num, width}), initial_std))),
      padding_(padding) {}

namespace {

// Sums the gradient of a 16-bit table in fp32. torch's CPU kernel adds one token after the other in
// 16 bits, so that a sum of many tokens stops growing.
class NarrowEmbedding : public torch::autograd::Function<NarrowEmbedding> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& ids, int64_t padding) {
    context->save_for_backward({ids});
    context->saved_data["rows"] = weight.size(0);
    context->saved_data["padding"] = padding;
    return at::embedding(weight, ids, padding);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {at::embedding_dense_backward(
                gradients[0].to(at::kFloat), context->get_saved_variables()[0],
                context->saved_data["rows"].toInt(), context->saved_data["padding"].toInt(),
                /*scale_grad_by_freq=*/false),
            {},
            {}};
  }
};

}  // namespace

at::Tensor Embedding::forward(const at::Tensor& ids, bool sparse_gradient) const {
  const bool is_narrow = weight_.element_size() < 4 && kernels_of(weight_) != at::kCUDA;
  if (is_narrow && !sparse_gradient) return NarrowEmbedding::apply(weight_, ids, padding_);
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
      weight_(register_parameter("weight", draw_normal(at::empty({in, out}), initial_std))),
      bias_(register_parameter("bias", at::zeros({out}))) {}

at::Tensor Projection::forward(const at::Tensor& x) const {
  const at::Tensor flat = at::addmm(bias_, x.reshape({-1, x.size(-1)}), weight_);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight_.size(1);
  return flat.view(sizes);
}

}  // namespace tanren
