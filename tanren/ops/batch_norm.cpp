#include "tanren/ops/batch_norm.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/batch_norm_kernel.h"
#include "tanren/ops/synchronised_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace tanren {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

// Numbers per channel, [count, channels].
struct PerChannel {
  PerChannel(int64_t count, int64_t channels)
      : width(channels), memory(static_cast<size_t>(count * channels)) {}
  float* operator[](int64_t i) { return memory.data() + i * width; }
  int64_t width;
  std::vector<float> memory;
};

// Calls work with a null pointer whose type is the kernels' element type for x.
template <typename F>
void by_dtype(const at::Tensor& x, const F& work) {
  if (x.scalar_type() == at::kFloat) {
    work(static_cast<float*>(nullptr));
  } else {
    work(static_cast<uint16_t*>(nullptr));
  }
}
template <typename T>
T* data(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

using Numbers = std::vector<double>;

// Concatenates the parts into a 1-dim tensor.
at::Tensor row_of(const std::vector<Numbers>& parts) {
  Numbers all;
  for (const Numbers& part : parts) all.insert(all.end(), part.begin(), part.end());
  return at::tensor(all, at::kDouble);
}
void take_numbers(const at::Tensor& row, int64_t first, Numbers& numbers) {
  std::copy_n(row.const_data_ptr<double>() + first, numbers.size(), numbers.begin());
}

// Turns the moments of this rank's rows into those of all ranks' rows; returns the number of all
// rows.
double join_moments(const GatherRows& gather, int64_t rows, Numbers& mean, Numbers& variance) {
  const auto count = static_cast<double>(rows);
  Numbers squares = variance;
  for (double& number : squares) number *= count;
  const JointMoments joint = joint_moments(gather, row_of({{count}, mean, squares}));
  take_numbers(joint.mean.contiguous(), 0, mean);
  take_numbers(joint.variance.contiguous(), 0, variance);
  return joint.count.item<double>();
}

// The same for the sums of backward.
void join_sums(const GatherRows& gather, Numbers& sum, Numbers& dot) {
  const at::Tensor all = gather(row_of({sum, dot})).sum(0);
  take_numbers(all, 0, sum);
  take_numbers(all, std::ssize(sum), dot);
}

class BatchNormFunction : public torch::autograd::Function<BatchNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& residual, const at::Tensor& weight,
                            const at::Tensor& bias, const BatchNormCall& call) {
    const int64_t channels = x.size(1), rows = x.numel() / channels;
    const auto width = static_cast<size_t>(channels);
    Numbers mean(width), variance(width);
    auto count = static_cast<double>(rows);
    auto gather = AcrossRanksScope::current();
    at::Tensor y = at::empty_like(x);
    // Rows: mean, 1 / standard deviation, and factor and offset of x.
    const at::Tensor saved = at::empty({4, channels}, weight.options().requires_grad(false));
    // y gives relu's mask; without a residual the mask can be computed from x.
    const bool needs_y = call.relu && residual.has_value();
    context->save_for_backward({x, weight, saved, needs_y ? y : at::Tensor()});
    context->saved_data["relu"] = call.relu;
    context->saved_data["residual"] = residual.has_value();
    const OperatorRecord record("tanren::batch_norm", x, weight, bias,
                                residual.value_or(at::Tensor()), y);
    if (is_dry(x)) return y;
    auto* numbers = saved.mutable_data_ptr<float>();
    float *factor = numbers + 2 * channels, *offset = numbers + 3 * channels;
    const auto *scale = weight.const_data_ptr<float>(), *shift = bias.const_data_ptr<float>();
    by_dtype(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      channel_moments<T>(data<T>(x), rows, channels, mean.data(), variance.data());
      if (gather != nullptr) count = join_moments(*gather, rows, mean, variance);
      for (size_t c = 0; c < width; ++c) {
        const double inverse = 1 / std::sqrt(variance[c] + call.eps);
        numbers[c] = static_cast<float>(mean[c]);
        numbers[width + c] = static_cast<float>(inverse);
        factor[c] = static_cast<float>(scale[c] * inverse);
        offset[c] = static_cast<float>(shift[c] - mean[c] * scale[c] * inverse);
      }
      normalise_rows<T>({rows, channels, factor, offset, call.relu}, data<T>(x),
                        data<T>(residual.value_or(at::Tensor())), data<T>(y));
    });
    update_running(call, mean, variance, count);
    context->saved_data["count"] = count;
    context->saved_data["gather"] = keep_gather(std::move(gather));
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "[ops] batch norm in channels-last can be differentiated once; set model.memory_format = "
          "\"contiguous\" for second derivatives");
    }
    const auto tensors = context->get_saved_variables();
    const at::Tensor &x = tensors[0], &weight = tensors[1], &saved = tensors[2], &y = tensors[3];
    const int64_t channels = x.size(1), rows = x.numel() / channels;
    const auto width = static_cast<size_t>(channels);
    const bool relu = context->saved_data["relu"].toBool();
    const auto* numbers = saved.const_data_ptr<float>();
    const NormedRows norm{rows, channels, numbers + 2 * channels, numbers + 3 * channels, relu};
    const at::Tensor gradient = gradients[0].to(x.scalar_type()).contiguous(kLast);
    const at::Tensor masked = y.defined() ? at::empty_like(gradient) : at::Tensor();
    at::Tensor dx = at::empty_like(x);
    Numbers sum(width), dot(width);
    PerChannel slopes(3, channels);
    const auto* scale = weight.const_data_ptr<float>();
    at::Tensor d_weight = at::empty_like(weight), d_bias = at::empty_like(weight);
    const auto gradients_of_inputs = [&] {
      at::Tensor d_residual;
      if (context->saved_data["residual"].toBool()) d_residual = relu ? masked : gradient;
      return torch::autograd::variable_list{dx, d_residual, d_weight, d_bias, {}};
    };
    if (is_dry(x)) return gradients_of_inputs();
    const OperatorRecord record("tanren::batch_norm_backward", gradient, x, y, masked, dx);
    by_dtype(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      gradient_sums<T>(norm, data<T>(gradient), data<T>(x), data<T>(y), numbers, data<T>(masked),
                       sum.data(), dot.data());
      for (size_t c = 0; c < width; ++c) {
        d_weight.mutable_data_ptr<float>()[c] = static_cast<float>(dot[c] * numbers[width + c]);
        d_bias.mutable_data_ptr<float>()[c] = static_cast<float>(sum[c]);
      }
      // Parameter gradients are summed over ranks once a step, but x's gradient needs the sums now.
      const auto gather = kept_gather(context->saved_data["gather"]);
      if (gather != nullptr) join_sums(*gather, sum, dot);
      const double count = context->saved_data["count"].toDouble();
      for (size_t c = 0; c < width; ++c) {
        const double inverse = numbers[width + c];
        const double of_gradient = scale[c] * inverse;
        const double of_x = -of_gradient * inverse * inverse * dot[c] / count;
        slopes[0][c] = static_cast<float>(of_gradient);
        slopes[1][c] = static_cast<float>(of_x);
        slopes[2][c] = static_cast<float>(-of_gradient * sum[c] / count - of_x * numbers[c]);
      }
      input_gradient<T>(norm, {slopes[0], slopes[1], slopes[2]},
                        data<T>(masked.defined() ? masked : gradient), data<T>(x), masked.defined(),
                        data<T>(dx));
    });
    return gradients_of_inputs();
  }

 private:
  static void update_running(const BatchNormCall& call, const Numbers& mean,
                             const Numbers& variance, double count) {
    auto* running_mean = call.running_mean.data_ptr<float>();
    auto* running_var = call.running_var.data_ptr<float>();
    const double unbiased = count / (count - 1);
    for (size_t c = 0; c < mean.size(); ++c) {
      const auto mix = [&](float old, double now) {
        return static_cast<float>((1 - call.momentum) * old + call.momentum * now);
      };
      running_mean[c] = mix(running_mean[c], mean[c]);
      running_var[c] = mix(running_var[c], variance[c] * unbiased);
    }
  }
};

bool is_ours(const at::Tensor& x, const BatchNormCall& call) {
  const auto fits = [&](const at::Tensor& t) {
    return !t.defined() ||
           (t.scalar_type() == x.scalar_type() && t.sizes() == x.sizes() && t.is_contiguous(kLast));
  };
  const auto wide = [](const at::Tensor& t) {
    return t.scalar_type() == at::kFloat && t.is_contiguous();
  };
  return call.training && has_cpu_kernels(x) && x.dim() == 4 && fits(x) && fits(call.residual) &&
         !x.is_contiguous() && x.numel() > x.size(1) &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && wide(call.weight) &&
         wide(call.bias) && wide(call.running_mean) && wide(call.running_var);
}

}  // namespace

at::Tensor batch_norm(const at::Tensor& x, const BatchNormCall& call) {
  if (is_ours(x, call)) {
    const auto residual =
        call.residual.defined() ? std::optional<at::Tensor>(call.residual) : std::nullopt;
    return BatchNormFunction::apply(x, residual, call.weight, call.bias, call);
  }
  at::Tensor y =
      at::batch_norm(x, call.weight, call.bias, call.running_mean, call.running_var, call.training,
                     call.momentum, call.eps, at::globalContext().userEnabledCuDNN());
  if (call.residual.defined()) y += call.residual;
  return call.relu ? y.relu_() : y;
}

}  // namespace tanren
