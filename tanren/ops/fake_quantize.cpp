#include "tanren/ops/fake_quantize.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/base/quantized_weight.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/fake_quantize_kernel.h"
#include "tanren/ops/parallel_for.h"

#include <fmt/format.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tanren {
namespace {

// Elements of one partial sum of the scale's gradient: a constant, so that threads do not matter.
constexpr int64_t kFakeChunk = 4096;

bool is_fake_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble;
}

at::ScalarType exact_type(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls work(T, S) of the dtype, as null pointers.
template <class Work>
void with_fake_types(at::ScalarType dtype, const Work& work) {
  if (dtype == at::kDouble) {
    work(static_cast<double*>(nullptr), double{});
  } else if (dtype == at::kBFloat16) {
    work(static_cast<c10::BFloat16*>(nullptr), float{});
  } else {
    work(static_cast<float*>(nullptr), float{});
  }
}

// Steps around 0.
struct StepBounds {
  int64_t low, high;
};

template <class S>
FakeSteps<S> steps_of(S scale, const StepBounds& bounds) {
  return {scale, S{1} / scale, static_cast<S>(bounds.low), static_cast<S>(bounds.high)};
}

at::Tensor faked_on_cpu(const at::Tensor& x, const at::Tensor& scale, const StepBounds& bounds) {
  at::Tensor y = at::empty_like(x);
  const OperatorRecord record("tanren::fake_quantize", x, scale, y);
  if (is_dry(y)) return y;
  with_fake_types(x.scalar_type(), [&](auto* of_type, auto of_scale) {
    using T = std::remove_pointer_t<decltype(of_type)>;
    using S = decltype(of_scale);
    const auto steps = steps_of(*scale.const_data_ptr<S>(), bounds);
    const T* from = x.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    parallel_for(0, x.numel(), 4 * kFakeChunk, [&](int64_t begin, int64_t end) {
      fake_quantize_row(from + begin, end - begin, steps, to + begin);
    });
  });
  return y;
}

struct FakeGradients {
  at::Tensor x, scale;  // `scale`: not yet multiplied by LSQ's factor
};

FakeGradients unfaked_on_cpu(const at::Tensor& gradient, const at::Tensor& x,
                             const at::Tensor& scale, const StepBounds& bounds) {
  FakeGradients made{at::empty_like(x), at::empty_like(scale)};
  const OperatorRecord record("tanren::fake_quantize_backward", gradient, x, scale, made.x);
  if (is_dry(made.x)) return made;
  const int64_t count = x.numel(), chunks = (count + kFakeChunk - 1) / kFakeChunk;
  std::vector<double> sums(static_cast<size_t>(chunks));
  with_fake_types(x.scalar_type(), [&](auto* of_type, auto of_scale) {
    using T = std::remove_pointer_t<decltype(of_type)>;
    using S = decltype(of_scale);
    const auto steps = steps_of(*scale.const_data_ptr<S>(), bounds);
    const T *from = x.const_data_ptr<T>(), *of_y = gradient.const_data_ptr<T>();
    T* to = made.x.mutable_data_ptr<T>();
    parallel_for(0, chunks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t first = chunk * kFakeChunk, size = std::min(kFakeChunk, count - first);
        sums[static_cast<size_t>(chunk)] =
            fake_quantize_gradient(from + first, of_y + first, size, steps, to + first);
      }
    });
    double total = 0;
    for (const double sum : sums) total += sum;
    *made.scale.mutable_data_ptr<S>() = static_cast<S>(total);
  });
  return made;
}

// The same by torch's operators, for other devices and for gradients of gradients.
at::Tensor faked_by_torch(const at::Tensor& x, const at::Tensor& scale, const StepBounds& bounds) {
  const at::Tensor ratio = x.to(scale.scalar_type()) * scale.reciprocal();
  return (ratio.clamp(bounds.low, bounds.high).round() * scale).to(x.scalar_type());
}

FakeGradients unfaked_by_torch(const at::Tensor& gradient, const at::Tensor& x,
                               const at::Tensor& scale, const StepBounds& bounds) {
  const at::Tensor ratio = (x.to(scale.scalar_type()) * scale.reciprocal()).detach();
  const at::Tensor within = ratio.clamp(bounds.low, bounds.high), passes = ratio == within;
  const at::Tensor slope = within.round() - ratio * passes;
  return {gradient * passes, (gradient.to(scale.scalar_type()) * slope).sum().view(scale.sizes())};
}

class FakeQuantizeFunction : public torch::autograd::Function<FakeQuantizeFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& scale, int64_t low, int64_t high, double factor) {
    const at::Tensor x = given.contiguous(given.suggest_memory_format());
    context->save_for_backward({x, scale});
    context->saved_data["low"] = low;
    context->saved_data["high"] = high;
    context->saved_data["factor"] = factor;
    return has_cpu_kernels(x) ? faked_on_cpu(x, scale, {low, high})
                              : faked_by_torch(x, scale, {low, high});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto tensors = context->get_saved_variables();
    const at::Tensor &x = tensors[0], &scale = tensors[1];
    const StepBounds bounds{context->saved_data["low"].toInt(),
                            context->saved_data["high"].toInt()};
    const double factor = context->saved_data["factor"].toDouble();
    const bool kernel = has_cpu_kernels(x) && !at::GradMode::is_enabled();
    FakeGradients made = kernel ? unfaked_on_cpu(gradients[0].contiguous(x.suggest_memory_format()),
                                                 x, scale, bounds)
                                : unfaked_by_torch(gradients[0], x, scale, bounds);
    if (context->needs_input_grad(1)) {
      made.scale = made.scale * factor;
    } else {
      made.scale = at::Tensor();
    }
    return {made.x, made.scale, {}, {}, {}};
  }
};

class FakeWeightFunction : public torch::autograd::Function<FakeWeightFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& weight,
                            int64_t groups) {
    const at::Tensor grouped =
        weight.to(exact_type(weight.scalar_type())).reshape({weight.size(0), groups, -1});
    const at::Tensor scales = grouped.abs()
                                  .amax(-1, /*keepdim=*/true)
                                  .div_(static_cast<double>(kLargestInt8))
                                  .clamp_min_(std::numeric_limits<float>::min());
    at::Tensor values = grouped * scales.reciprocal();
    values.round_().clamp_(-kLargestInt8, kLargestInt8).mul_(scales);
    // The result has the weight's strides, because autograd and the optimizers expect them in its
    // gradient.
    return at::empty_like(weight).copy_(values.view(weight.sizes()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], {}};
  }
};

}  // namespace

at::Tensor fake_quantize(const at::Tensor& x, const at::Tensor& scale, const FakeRange& range,
                         int64_t sample_elements) {
  if (!is_fake_dtype(x.scalar_type()) || scale.scalar_type() != exact_type(x.scalar_type()) ||
      scale.numel() != 1 || sample_elements < 1 || range.low > range.zero_point ||
      range.high < range.zero_point || range.high - range.low < 1) {
    throw Error(fmt::format(
        "[ops] fake_quantize of {} with {} scales of {}, {} elements a sample "
        "and bytes {} to {} around {}; give fp32, bf16 or fp64, one scale of "
        "fp32 (fp64), and a range around its zero point",
        c10::toString(x.scalar_type()), scale.numel(), c10::toString(scale.scalar_type()),
        sample_elements, range.low, range.high, range.zero_point));
  }
  const int64_t low = range.low - range.zero_point, high = range.high - range.zero_point;
  const auto largest = static_cast<double>(std::max(-low, high));
  const double factor = 1 / std::sqrt(static_cast<double>(sample_elements) * largest);
  return FakeQuantizeFunction::apply(x, scale, low, high, factor);
}

at::Tensor fake_quantize_weight(const at::Tensor& weight, int64_t group) {
  const int64_t row =
      weight.dim() == 0 || weight.size(0) == 0 ? 0 : weight.numel() / weight.size(0);
  if (!is_fake_dtype(weight.scalar_type()) || row == 0 || group < 0 || group % 4 != 0 ||
      (group > 0 && row % group != 0)) {
    throw InputError(
        fmt::format("[quantize] a weight of dtype {} with {} elements a channel, in "
                    "groups of {}; give fp32, bf16 or fp64 and a multiple of 4 that "
                    "divides them, or 0",
                    c10::toString(weight.scalar_type()), row, group));
  }
  return FakeWeightFunction::apply(weight, group == 0 ? int64_t{1} : row / group);
}

}  // namespace tanren
