#include "tanren/ops/convolution.h"

#include "tanren/base/operator_listener.h"
#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/image_columns.h"
#include "tanren/ops/parallel_for.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace tanren {
namespace {

constexpr int64_t kMaxColumnBytes = int64_t{64} << 20;
constexpr auto kNhwc = at::MemoryFormat::ChannelsLast;

// [n, c, h, w] channels-last as [n · h · w, c], and back; both are views.
at::Tensor as_rows(const at::Tensor& x) { return x.permute({0, 2, 3, 1}).view({-1, x.size(1)}); }
at::Tensor as_images(const at::Tensor& rows, int64_t n, int64_t height, int64_t width) {
  return rows.view({n, height, width, rows.size(1)}).permute({0, 3, 1, 2});
}

// Every stride-th pixel in both directions: the pixels that a 1 × 1 kernel sees.
at::Tensor every(const at::Tensor& x, int64_t stride) {
  return stride == 1 ? x : x.slice(2, 0, x.size(2), stride).slice(3, 0, x.size(3), stride);
}

struct Shape {
  int64_t stride, padding;
  bool is_product(const at::Tensor& weight) const { return weight.size(2) == 1 && padding == 0; }
};

at::Tensor torch_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                          const Shape& shape, bool of_weight) {
  const auto both = at::convolution_backward(
      gradient, x, weight, std::nullopt, {shape.stride, shape.stride},
      {shape.padding, shape.padding}, {1, 1}, false, {0, 0}, 1, {!of_weight, of_weight, false});
  return of_weight ? std::get<1>(both) : std::get<0>(both);
}

// For kernels above 1 × 1.
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& x,
                           const at::Tensor& weight, const Shape& shape) {
  const int64_t kernel = weight.size(2), in = weight.size(1), out = weight.size(0);
  const int64_t rows = gradient.size(0) * gradient.size(2) * gradient.size(3);
  const int64_t bytes = rows * kernel * kernel * in * int64_t{sizeof(c10::BFloat16)};
  // Channels-last is slow for few channels, as those of the input images. The matrix product is
  // slow for 64 channels.
  if (in <= 4) {
    return torch_gradient(gradient.contiguous(), x.contiguous(), weight.contiguous(), shape, true);
  }
  if (in < 128 || bytes > kMaxColumnBytes) return torch_gradient(gradient, x, weight, shape, true);
  const Patches patches{x.size(2),        x.size(3),       in, kernel, shape.stride, shape.padding,
                        gradient.size(2), gradient.size(3)};
  at::Tensor columns = at::empty({rows, kernel * kernel * in}, x.options());
  if (!is_dry(x)) {
    const OperatorRecord record("tanren::image_columns", x, columns);
    const auto* from = x.const_data_ptr<c10::BFloat16>();
    auto* to = columns.mutable_data_ptr<c10::BFloat16>();
    parallel_for(0, x.size(0) * patches.out_height, 1,
                 [&](int64_t begin, int64_t end) { image_columns(patches, from, begin, end, to); });
  }
  return at::mm(as_rows(gradient).t(), columns)
      .view({out, kernel, kernel, in})
      .permute({0, 3, 1, 2});
}

class ConvolutionFunction : public torch::autograd::Function<ConvolutionFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            int64_t stride, int64_t padding) {
    const Shape shape{stride, padding};
    const at::Tensor x = given.contiguous(kNhwc);
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["bias"] = bias.has_value();
    if (!shape.is_product(weight)) {
      at::Tensor y = at::convolution(x, weight, bias, {stride, stride}, {padding, padding}, {1, 1},
                                     false, {0, 0}, 1);
      note_dry_forward(y.numel() * (weight.numel() / weight.size(0)));
      return y;
    }
    const at::Tensor seen = every(x, stride).contiguous(kNhwc);
    const at::Tensor factor = weight.view({weight.size(0), weight.size(1)}).t();
    const at::Tensor rows =
        bias ? at::addmm(*bias, as_rows(seen), factor) : at::mm(as_rows(seen), factor);
    note_dry_forward(rows.numel() * weight.size(1));
    return as_images(rows, seen.size(0), seen.size(2), seen.size(3));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto tensors = context->get_saved_variables();
    const at::Tensor &x = tensors[0], &weight = tensors[1];
    const Shape shape{context->saved_data["stride"].toInt(),
                      context->saved_data["padding"].toInt()};
    const at::Tensor gradient = gradients[0].contiguous(kNhwc);
    at::Tensor dx, dw, db;
    if (context->saved_data["bias"].toBool()) db = gradient.sum(at::IntArrayRef{0, 2, 3});
    const bool again = at::GradMode::is_enabled();  // the gradient will be differentiated again
    const bool product = shape.is_product(weight) && !again;
    if (context->needs_input_grad(1)) {
      if (product) {
        const at::Tensor seen = every(x, shape.stride).contiguous(kNhwc);
        dw = at::mm(as_rows(gradient).t(), as_rows(seen)).view(weight.sizes());
      } else {
        dw = again ? torch_gradient(gradient, x, weight, shape, true)
                   : weight_gradient(gradient, x, weight, shape);
      }
    }
    if (context->needs_input_grad(0)) {
      dx = product ? product_gradient(gradient, x, weight, shape)
                   : torch_gradient(gradient, x, weight, shape, false);
    }
    return {dx, dw, db, {}, {}};
  }

 private:
  // The input gradient of a 1 × 1 kernel.
  static at::Tensor product_gradient(const at::Tensor& gradient, const at::Tensor& x,
                                     const at::Tensor& weight, const Shape& shape) {
    at::Tensor seen =
        as_images(at::mm(as_rows(gradient), weight.view({weight.size(0), weight.size(1)})),
                  gradient.size(0), gradient.size(2), gradient.size(3));
    if (shape.stride == 1) return seen;
    at::Tensor whole = at::empty(x.sizes(), x.options(), kNhwc).zero_();
    every(whole, shape.stride).copy_(seen);
    return whole;
  }
};

bool is_ours(const at::Tensor& x, const at::Tensor& weight) {
  const bool bf16 = at::autocast::is_autocast_enabled(at::kCPU)
                        ? at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16
                        : x.scalar_type() == at::kBFloat16;
  return bf16 && has_cpu_kernels(x) && x.dim() == 4 && x.numel() > 0 &&
         at::GradMode::is_enabled() && weight.requires_grad() &&
         (x.suggest_memory_format() == kNhwc || weight.suggest_memory_format() == kNhwc);
}

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       int64_t stride, int64_t padding) {
  if (!is_ours(x, weight)) return at::conv2d(x, weight, bias, stride, padding);
  const auto given = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  const auto answer = ask_listener([&](OperatorListener& own) {
    return own.conv2d(x, weight, given,
                      {.stride = stride, .padding = padding, .dilation = {1}, .groups = 1});
  });
  if (answer) return *answer;
  const OperatorListenerScope unheard(nullptr);  // does not hear the products inside
  const auto cast = [](const at::Tensor& t) {
    return at::autocast::is_autocast_enabled(at::kCPU)
               ? at::autocast::cached_cast(at::kBFloat16, t, at::kCPU)
               : t;
  };
  const auto added = bias.defined() ? std::optional<at::Tensor>(cast(bias)) : std::nullopt;
  return ConvolutionFunction::apply(cast(x), cast(weight), added, stride, padding);
}

}  // namespace tanren
