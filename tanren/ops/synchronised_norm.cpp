#include "tanren/ops/synchronised_norm.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/instance_norm_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tanren {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

struct KeptGather : torch::CustomClassHolder {
  explicit KeptGather(std::shared_ptr<const GatherRows> kept) : gather(std::move(kept)) {}
  std::shared_ptr<const GatherRows> gather;
};

// How per-channel values broadcast against x [n, channels, …].
struct Channels {
  explicit Channels(const at::Tensor& x)
      : count(x.size(1)), wide(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) {
    shape.assign(static_cast<size_t>(x.dim()), 1);
    shape[1] = count;
    dims.push_back(0);
    for (int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  }
  // [channels] → a view that broadcasts against x, in the dtype of the arithmetic.
  at::Tensor beside(const at::Tensor& values) const { return values.to(wide).view(shape); }

  int64_t count;
  at::ScalarType wide;
  std::vector<int64_t> shape, dims;
};

struct NormCall {
  at::Tensor running_mean, running_var;  // undefined: none are kept
  double momentum, eps;
  std::shared_ptr<const GatherRows> gather;
};

// This rank's row for joint_moments.
at::Tensor own_moments(const at::Tensor& x, const Channels& channels) {
  const int64_t count = channels.count > 0 ? x.numel() / channels.count : 0;
  at::Tensor row = at::zeros({1 + 2 * channels.count}, x.options().dtype(at::kDouble));
  if (count == 0) return row;
  const at::Tensor values = x.to(channels.wide);
  const at::Tensor mean = values.mean(channels.dims);
  const at::Tensor squares = (values - channels.beside(mean)).square_();
  row.narrow(0, 0, 1).fill_(static_cast<double>(count));
  row.narrow(0, 1, channels.count).copy_(mean);
  row.narrow(0, 1 + channels.count, channels.count).copy_(squares.sum(channels.dims));
  return row;
}

// share: this batch's weight in the running statistics; 0 if no rank has a sample.
void mix(const at::Tensor& running, const at::Tensor& now, const at::Tensor& share) {
  if (!running.defined()) return;
  const at::AutoDispatchBelowADInplaceOrView uncounted;  // no version bump, as in torch's
  at::Tensor(running).copy_(running.to(at::kDouble) * (1 - share) + now * share);
}

class SynchronisedNorm : public torch::autograd::Function<SynchronisedNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const MaybeTensor& weight, const MaybeTensor& bias,
                            const NormCall& call) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Channels channels(x);
    const JointMoments joint = joint_moments(*call.gather, own_moments(x, channels));
    const at::Tensor inverse = (joint.variance + call.eps).rsqrt();
    const at::Tensor factor = weight ? weight->to(at::kDouble) * inverse : inverse;
    at::Tensor offset = joint.mean * factor;
    offset = bias ? bias->to(at::kDouble) - offset : -offset;

    const at::Tensor share = joint.count.gt(0).to(at::kDouble) * call.momentum;
    mix(call.running_mean, joint.mean, share);
    mix(call.running_var, joint.variance * (joint.count / (joint.count - 1).clamp_min(1)), share);

    at::Tensor y = at::empty_like(x);
    at::addcmul_out(y, channels.beside(offset), x, channels.beside(factor));
    context->save_for_backward(
        {x, weight.value_or(at::Tensor()), at::cat({joint.count.view({1}), joint.mean, inverse})});
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["gather"] = keep_gather(call.gather);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "[ops] synchronised batch norm can be differentiated once; set parallel.buffers = "
          "\"mean\" for second derivatives");
    }
    const auto tensors = context->get_saved_variables();
    const at::Tensor &x = tensors[0], &weight = tensors[1], &saved = tensors[2];
    const Channels channels(x);
    const at::Tensor count = saved[0], mean = saved.narrow(0, 1, channels.count),
                     inverse = saved.narrow(0, 1 + channels.count, channels.count);
    const at::Tensor gradient = gradients[0].to(channels.wide);
    at::Tensor off = x.to(channels.wide) - channels.beside(mean);
    const at::Tensor sum = gradient.sum(channels.dims).to(at::kDouble);
    const at::Tensor dot = (off * gradient).sum(channels.dims).to(at::kDouble);
    // Every rank gathers, also one that needs no gradient, because the other ranks need its sums.
    const auto gather = kept_gather(context->saved_data["gather"]);
    const at::Tensor all = (*gather)(at::cat({sum, dot})).sum(0) / count.clamp_min(1);
    const at::Tensor mean_gradient = all.narrow(0, 0, channels.count);
    const at::Tensor mean_dot = all.narrow(0, channels.count, channels.count);

    at::Tensor dx;
    if (context->needs_input_grad(0)) {
      const at::Tensor factor = weight.defined() ? weight.to(at::kDouble) * inverse : inverse;
      dx = off.mul_(channels.beside(-factor * inverse.square() * mean_dot))
               .sub_(channels.beside(factor * mean_gradient))
               .addcmul_(gradient, channels.beside(factor))
               .to(x.scalar_type());
    }
    at::Tensor d_weight, d_bias;  // this rank's; parameter gradients are summed once a step
    if (weight.defined()) d_weight = (dot * inverse).to(weight.scalar_type());
    if (context->saved_data["bias"].toBool()) d_bias = sum.to(channels.wide);
    return {dx, d_weight, d_bias, {}};
  }
};

at::Tensor defined_or_none(const MaybeTensor& tensor) { return tensor.value_or(at::Tensor()); }
MaybeTensor none_or_defined(const MaybeTensor& tensor) {
  return tensor && tensor->defined() ? tensor : std::nullopt;
}

at::Tensor batch_norm_over_ranks(const at::Tensor& x, const MaybeTensor& weight,
                                 const MaybeTensor& bias, const MaybeTensor& running_mean,
                                 const MaybeTensor& running_var, bool training, double momentum,
                                 double eps, bool cudnn_enabled) {
  auto gather = training ? AcrossRanksScope::current() : nullptr;
  if (gather == nullptr) {
    return at::native::batch_norm(x, weight, bias, running_mean, running_var, training, momentum,
                                  eps, cudnn_enabled);
  }
  const NormCall call{.running_mean = defined_or_none(running_mean),
                      .running_var = defined_or_none(running_var),
                      .momentum = momentum,
                      .eps = eps,
                      .gather = std::move(gather)};
  return SynchronisedNorm::apply(x, none_or_defined(weight), none_or_defined(bias), call);
}

// instance_norm calls batch_norm with the samples as channels, which must not be joined over ranks.
at::Tensor instance_norm_alone(const at::Tensor& x, const MaybeTensor& weight,
                               const MaybeTensor& bias, const MaybeTensor& running_mean,
                               const MaybeTensor& running_var, bool use_input_stats,
                               double momentum, double eps, bool cudnn_enabled) {
  const AcrossRanksScope alone(nullptr);
  return at::native::instance_norm(x, weight, bias, running_mean, running_var, use_input_stats,
                                   momentum, eps, cudnn_enabled);
}

}  // namespace

void install_synchronised_norm() {
  static std::once_flag once;
  std::call_once(once, [] {
    const auto registered = [](c10::DispatchKey key) {
      auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      library->impl("batch_norm", batch_norm_over_ranks);
      library->impl("instance_norm", instance_norm_alone);
      return library;
    };
    // Never unregistered, because other threads may still be inside at exit.
    static std::vector<torch::Library*> libraries;
    std::set<c10::DeviceType> devices = {c10::kCPU, c10::kCUDA};
    if (const auto other = at::accelerator::getAccelerator()) devices.insert(*other);
    for (const c10::DeviceType device : devices) {
      const auto key = at::TensorOptions(device).computeDispatchKey();
      const auto backend = c10::toBackendComponent(key);
      libraries.push_back(
          registered(c10::getAutogradRelatedKeySetFromBackend(backend).highestPriorityTypeId()));
    }
  });
}

JointMoments joint_moments(const GatherRows& gather, const at::Tensor& row) {
  const int64_t channels = (row.numel() - 1) / 2;
  const at::Tensor all = gather(row);
  const at::Tensor counts = all.narrow(1, 0, 1), means = all.narrow(1, 1, channels);
  JointMoments joint;
  joint.count = counts.sum();
  const at::Tensor divisor = joint.count.clamp_min(1);
  joint.mean = (counts * means).sum(0) / divisor;
  const at::Tensor squares =
      all.narrow(1, 1 + channels, channels) + counts * (means - joint.mean).square();
  joint.variance = squares.sum(0) / divisor;
  return joint;
}

c10::IValue keep_gather(std::shared_ptr<const GatherRows> gather) {
  if (gather == nullptr) return {};
  return c10::IValue::make_capsule(c10::make_intrusive<KeptGather>(std::move(gather)));
}

std::shared_ptr<const GatherRows> kept_gather(const c10::IValue& value) {
  if (value.isNone()) return nullptr;
  return c10::static_intrusive_pointer_cast<KeptGather>(value.toCapsule())->gather;
}

}  // namespace tanren
