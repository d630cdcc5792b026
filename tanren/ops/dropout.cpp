#include "tanren/ops/dropout.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/base/text.h"
#include "tanren/blocks/recompute.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/draw.h"
#include "tanren/ops/dropout_mask.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tanren {

const RandomScope& scope_for(at::IntArrayRef sizes, double p) {
  if (!(p >= 0 && p < 1)) {
    throw Error(fmt::format("[ops] dropout probability {} is outside [0, 1)", p));
  }
  const RandomScope* scope = RandomScope::current();
  if (scope == nullptr) {
    throw Error(
        "[ops] dropout outside a RandomScope; open tanren::RandomScope(seed, attempt, ids) "
        "around the forward, or call eval() on the module");
  }
  const int64_t samples = scope->ids().size(0);
  if (sizes.empty() || sizes[0] != samples) {
    throw Error(
        fmt::format("[ops] dropout of a tensor of shape [{}] in a RandomScope of {} "
                    "samples; dim 0 must be the samples",
                    fmt::join(sizes, ", "), samples));
  }
  return *scope;
}

MaskKey mask_key(const RandomScope& scope, double p, uint64_t site) {
  const double threshold = std::min(std::round(p * 4294967296.0), 4294967295.0);
  return {random_bits(scope.seed(), static_cast<uint64_t>(scope.attempt()), site),
          static_cast<uint32_t>(threshold)};
}

DropoutDraw make_draw(const RandomScope& scope, const at::Tensor& ids, at::IntArrayRef sizes,
                      double p, uint64_t site) {
  const MaskKey key = mask_key(scope, p, site);
  return {{static_cast<uint32_t>(key.key), static_cast<uint32_t>(key.key >> 32)},
          key.threshold,
          ids.const_data_ptr<int64_t>(),
          sizes[0],
          sizes[0] == 0 ? 0 : c10::multiply_integers(sizes) / sizes[0]};
}

namespace {

// {out, mask}. A contiguous CPU tensor takes one pass; others draw the mask and multiply.
std::pair<at::Tensor, at::Tensor> dropout_with_mask(const at::Tensor& x, double p, uint64_t site) {
  const RandomScope& scope = scope_for(x.sizes(), p);
  const double scale = 1 / (1 - p);
  if (!has_cpu_kernels(x) || !x.is_contiguous()) {
    const at::Tensor mask = dropout_mask(x.sizes(), p, site, x.device());
    return {at::native_dropout_backward(x, mask, scale), mask};
  }
  const at::Tensor ids = scope.ids().contiguous();
  const DropoutDraw draw = make_draw(scope, ids, x.sizes(), p, site);
  at::Tensor out = at::empty_like(x);
  at::Tensor mask = at::empty(x.sizes(), x.options().dtype(at::kBool));
  const OperatorRecord record("tanren::dropout", x, out, mask);
  if (is_dry(x)) return {out, mask};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "dropout", [&] {
    apply_dropout<scalar_t>(draw, scale, x.const_data_ptr<scalar_t>(),
                            out.mutable_data_ptr<scalar_t>(), mask.mutable_data_ptr<bool>());
  });
  return {out, mask};
}

// Saves what backward needs of a draw. In a recomputed block backward draws the mask again instead
// of saving it. A draw needs no tensor of the block, so the recomputation may stop before the
// dropout's input is computed.
void save_draw(torch::autograd::AutogradContext* context, const at::Tensor& mask, double p,
               int64_t site) {
  context->saved_data["scale"] = 1 / (1 - p);
  if (!in_recomputed_block()) {
    context->save_for_backward({mask});
    return;
  }
  const RandomScope& scope = *RandomScope::current();
  context->saved_data["seed"] = static_cast<int64_t>(scope.seed());
  context->saved_data["attempt"] = scope.attempt();
  context->saved_data["ids"] = scope.ids();
  context->saved_data["p"] = p;
  context->saved_data["site"] = site;
}

at::Tensor saved_mask(torch::autograd::AutogradContext* context, const at::Tensor& gradient) {
  auto& saved = context->saved_data;
  if (saved.count("ids") == 0) return context->get_saved_variables()[0];
  const RandomScope scope(static_cast<uint64_t>(saved["seed"].toInt()), saved["attempt"].toInt(),
                          saved["ids"].toTensor());
  return dropout_mask(gradient.sizes(), saved["p"].toDouble(),
                      static_cast<uint64_t>(saved["site"].toInt()), gradient.device());
}

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double p, int64_t site) {
    auto [out, mask] = dropout_with_mask(x, p, static_cast<uint64_t>(site));
    save_draw(context, mask, p, site);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor mask = saved_mask(context, gradients[0]);
    const double scale = context->saved_data["scale"].toDouble();
    return {at::native_dropout_backward(gradients[0], mask, scale), {}, {}};
  }
};

// residual + dropout(x) in one pass.
class AddDropoutFunction : public torch::autograd::Function<AddDropoutFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& residual,
                            const at::Tensor& x, double p, int64_t site) {
    const RandomScope& scope = scope_for(x.sizes(), p);
    const at::Tensor ids = scope.ids().contiguous();
    const DropoutDraw draw = make_draw(scope, ids, x.sizes(), p, static_cast<uint64_t>(site));
    at::Tensor out = at::empty_like(residual);
    at::Tensor mask;
    if (!in_recomputed_block()) mask = at::empty(x.sizes(), x.options().dtype(at::kBool));
    save_draw(context, mask, p, site);
    context->saved_data["dtype"] = x.scalar_type();
    const OperatorRecord record("tanren::add_dropout", residual, x, out, mask);
    if (is_dry(x)) return out;
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "add_dropout", [&] {
      using R = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
      add_dropout_rows(draw, 1 / (1 - p), residual.const_data_ptr<R>(),
                       x.const_data_ptr<scalar_t>(), out.mutable_data_ptr<R>(),
                       mask.defined() ? mask.mutable_data_ptr<bool>() : nullptr);
    });
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor mask = saved_mask(context, gradients[0]);
    const double scale = context->saved_data["scale"].toDouble();
    const auto dtype = context->saved_data["dtype"].toScalarType();
    const at::Tensor& gradient = gradients[0];
    if (at::GradMode::is_enabled() || !gradient.is_contiguous()) {
      const at::Tensor dropped = at::native_dropout_backward(gradient, mask, scale).to(dtype);
      return {gradient, dropped, {}, {}};
    }
    at::Tensor out = at::empty(gradient.sizes(), gradient.options().dtype(dtype));
    if (is_dry(gradient)) return {gradient, out, {}, {}};
    const OperatorRecord record("tanren::add_dropout_backward", gradient, mask, out);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "add_dropout_backward", [&] {
      using R = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
      add_dropout_gradient(gradient.numel(), scale, gradient.const_data_ptr<R>(),
                           mask.const_data_ptr<bool>(), out.mutable_data_ptr<scalar_t>());
    });
    return {gradient, out, {}, {}};
  }
};

// Whether one pass can compute the sum: both are contiguous on the CPU, and the residual's dtype is
// the one that the arithmetic uses.
bool adds_in_one_pass(const at::Tensor& residual, const at::Tensor& x) {
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return has_cpu_kernels(x) && has_cpu_kernels(residual) && x.sizes() == residual.sizes() &&
         x.is_contiguous() && residual.is_contiguous() && residual.scalar_type() == wide;
}

}  // namespace

at::Tensor add_dropout(const at::Tensor& residual, const at::Tensor& x, double p, uint64_t site,
                       bool training) {
  if (!training || p == 0) return residual + x;
  if (!adds_in_one_pass(residual, x)) return residual + dropout(x, p, site, training);
  return AddDropoutFunction::apply(residual, x, p, static_cast<int64_t>(site));
}

at::Tensor dropout(const at::Tensor& x, double p, uint64_t site, bool training) {
  if (!training || p == 0) return x;
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    return DropoutFunction::apply(x, p, static_cast<int64_t>(site));
  }
  return dropout_with_mask(x, p, site).first;
}

}  // namespace tanren
