#include "tanren/model/layers.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/model/init.h"
#include "tanren/ops/batch_norm.h"
#include "tanren/ops/convolution.h"
#include "tanren/ops/gelu.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace tanren {
namespace {

// torch's default for linear and convolution layers: kaiming_uniform(a = √5), which has this bound.
// The weight is drawn first, then the bias.
at::Tensor uniform(at::IntArrayRef sizes, int64_t fan_in) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return draw_uniform(at::empty(sizes), bound);
}

at::Tensor relu(const at::Tensor& x) { return at::relu(x); }
at::Tensor gelu(const at::Tensor& x) { return at::gelu(x); }
at::Tensor tanh(const at::Tensor& x) { return at::tanh(x); }
at::Tensor silu(const at::Tensor& x) { return at::silu(x); }

[[noreturn]] void throw_unknown(const std::string& key, const std::string& value,
                                const std::vector<std::string>& known) {
  const std::string near = nearest(value, known);
  throw ConfigError(
      fmt::format("[model] {} '{}' is unknown; {}", key, value,
                  near.empty() ? "there are " + join(known) : "did you mean '" + near + "'?"));
}

}  // namespace

Linear::Linear(int64_t in, int64_t out)
    : Module("Linear"),
      weight_(register_parameter("weight", uniform({out, in}, in))),
      bias_(register_parameter("bias", uniform({out}, in))) {}

at::Tensor Linear::forward(const at::Tensor& x) const { return at::linear(x, weight_, bias_); }

Conv2d::Conv2d(const Conv2dOptions& options) : Module("Conv2d"), options_(options) {
  const int64_t fan_in = options.in * options.kernel * options.kernel;
  weight_ = register_parameter(
      "weight", uniform({options.out, options.in, options.kernel, options.kernel}, fan_in));
  if (options.bias) bias_ = register_parameter("bias", uniform({options.out}, fan_in));
}

at::Tensor Conv2d::forward(const at::Tensor& x) const {
  return convolution(x, weight_, bias_, options_.stride, options_.padding);
}

ConvTranspose2d::ConvTranspose2d(int64_t in, int64_t out)
    : Module("ConvTranspose2d"),
      weight_(register_parameter("weight", uniform({in, out, 3, 3}, 9 * out))),
      bias_(register_parameter("bias", uniform({out}, 9 * out))) {}

at::Tensor ConvTranspose2d::forward(const at::Tensor& x) const {
  return at::conv_transpose2d(x, weight_, bias_, /*stride=*/2, /*padding=*/1, /*output_padding=*/1);
}

at::Tensor instance_norm(const at::Tensor& x) {
  return at::group_norm(x, /*num_groups=*/x.size(1), /*weight=*/{}, /*bias=*/{}, /*eps=*/1e-5);
}

at::Tensor reflection_pad(const at::Tensor& x, int64_t padding) {
  // torch's autocast on the CPU would pad in fp32.
  const c10::impl::ExcludeDispatchKeyGuard as_it_is(c10::DispatchKey::AutocastCPU);
  return at::reflection_pad2d(x, {padding, padding, padding, padding});
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels)
    : Module("GroupNorm"),
      groups_(groups),
      weight_(register_parameter("weight", at::ones({channels}))),
      bias_(register_parameter("bias", at::zeros({channels}))) {}

at::Tensor GroupNorm::forward(const at::Tensor& x) const {
  return at::group_norm(x, groups_, weight_, bias_, /*eps=*/1e-5);
}

BatchNorm2d::BatchNorm2d(int64_t channels)
    : Module("BatchNorm2d"),
      weight_(register_parameter("weight", at::ones({channels}))),
      bias_(register_parameter("bias", at::zeros({channels}))),
      running_mean_(register_buffer("running_mean", at::zeros({channels}))),
      running_var_(register_buffer("running_var", at::ones({channels}))),
      num_batches_tracked_(register_buffer("num_batches_tracked", at::zeros({}, at::kLong))) {}

at::Tensor BatchNorm2d::normalise(const at::Tensor& x, bool relu, const at::Tensor& residual) {
  if (is_training()) num_batches_tracked_.add_(1);
  return batch_norm(x, {.weight = weight_,
                        .bias = bias_,
                        .running_mean = running_mean_,
                        .running_var = running_var_,
                        .momentum = momentum,
                        .eps = 1e-5,
                        .training = is_training(),
                        .relu = relu,
                        .residual = residual});
}

Activation activation_named(const std::string& name) {
  if (name == "relu" || name.empty()) return relu;
  if (name == "gelu") return gelu;
  if (name == "gelu_tanh") return gelu_tanh;
  if (name == "tanh") return tanh;
  if (name == "silu") return silu;
  throw_unknown("activation", name, {"relu", "gelu", "gelu_tanh", "tanh", "silu"});
}

Norm make_norm(const std::string& kind, int64_t channels) {
  if (kind == "none") return {nullptr, [](const at::Tensor& x) { return x; }};
  if (kind == "batch") {
    const auto norm = std::make_shared<BatchNorm2d>(channels);
    return {norm, [norm = norm.get()](const at::Tensor& x) { return norm->forward(x); }};
  }
  if (kind != "group") throw_unknown("norm", kind, {"batch", "group", "none"});
  int64_t groups = std::min<int64_t>(8, channels);
  while (channels % groups != 0) --groups;
  const auto norm = std::make_shared<GroupNorm>(groups, channels);
  return {norm, [norm = norm.get()](const at::Tensor& x) { return norm->forward(x); }};
}

}  // namespace tanren
