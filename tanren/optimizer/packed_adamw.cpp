#include "tanren/optimizer/packed_adamw.h"

#include "tanren/base/dry_scope.h"
#include "tanren/base/names.h"
#include "tanren/optimizer/adamw.h"
#include "tanren/optimizer/packed_kernels.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace tanren {
namespace {

constexpr int kPacked = 1;

// The moments of one parameter.
struct Moments {
  at::Tensor first, second;              // codes, or bf16
  at::Tensor first_scale, second_scale;  // of codes
};

at::Tensor table(bool is_signed, at::Device device) {
  return at::from_blob(const_cast<float*>(packed_values(is_signed).data()), {256}, at::kFloat)
      .to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

// [blocks, kPackedBlock], zeros behind the end.
at::Tensor in_blocks(const at::Tensor& flat) {
  const int64_t rest = (kPackedBlock - flat.numel() % kPackedBlock) % kPackedBlock;
  return at::constant_pad_nd(flat, {0, rest}).view({-1, kPackedBlock});
}

class PackedAdamW final : public TensorOptimizer {
 public:
  PackedAdamW(const OptimizerOptions& options, std::vector<Group> packed, std::vector<Group> rest,
              Way way, std::vector<int64_t> begins)
      : options_(options),
        way_(way),
        groups_(std::move(packed)),
        rest_(make_adamw(options, std::move(rest))),
        begins_(std::move(begins)) {
    for (Group& group : groups_) {
      auto& moments = moments_.emplace_back();
      for (const auto& parameter : group.all.parameters) moments.push_back(make(parameter));
      group.all_steps = at::zeros({static_cast<int64_t>(group.names.size())}, at::kFloat);
    }
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    rest_->step(input);
    if (groups_.empty() || is_skipped(input)) return;
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      if (group.refresh(input) == 0) continue;
      auto* steps = group.all_steps.mutable_data_ptr<float>();
      for (size_t i = 0; i < group.names.size(); ++i) {
        if (group.present[i] == 0) continue;
        steps[i] += 1;
        update(group.all.parameters[i], group.all.gradients[i], moments_[g][i],
               numbers(group, input.learning_rate, steps[i]), static_cast<uint32_t>(steps[i]),
               static_cast<uint32_t>(begins_[group.index[i]]));
      }
    }
  }

  NamedTensors named() const override {
    NamedTensors tensors = rest_->named();
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t i = 0; i < groups_[g].names.size(); ++i) {
        const std::string& name = groups_[g].names[i];
        const Moments& moments = moments_[g][i];
        const std::string codes = moments.first_scale.defined() ? "_codes" : "";
        tensors.emplace_back(name + ".exp_avg" + codes, moments.first);
        tensors.emplace_back(name + ".exp_avg_sq" + codes, moments.second);
        if (!codes.empty()) {
          tensors.emplace_back(name + ".exp_avg_scales", moments.first_scale);
          tensors.emplace_back(name + ".exp_avg_sq_scales", moments.second_scale);
        }
        tensors.emplace_back(name + ".step", groups_[g].all_steps[static_cast<int64_t>(i)]);
      }
    }
    return tensors;
  }

 private:
  Moments make(const at::Tensor& parameter) const {
    const auto flat = parameter.options().requires_grad(false);
    const int64_t count = parameter.numel();
    if (options_.state == "bf16") {
      return {at::zeros({count}, flat.dtype(at::kBFloat16)),
              at::zeros({count}, flat.dtype(at::kBFloat16)),
              {},
              {}};
    }
    const int64_t blocks = (count + kPackedBlock - 1) / kPackedBlock;
    return {at::full({count}, packed_code(0, true), flat.dtype(at::kByte)),
            at::full({count}, packed_code(0, false), flat.dtype(at::kByte)),
            at::zeros({blocks}, flat.dtype(at::kFloat)),
            at::zeros({blocks}, flat.dtype(at::kFloat))};
  }

  MomentNumbers numbers(const Group& group, double learning_rate, double step) const {
    const double rate = learning_rate * group.learning_rate_scale;
    const bool is_decoupled = options_.kind == "adamw";
    MomentNumbers n{};
    n.beta1 = options_.beta1;
    n.beta2 = *options_.beta2;
    n.eps = *options_.eps;
    n.weight_decay = is_decoupled ? 0 : group.weight_decay;
    n.kept = is_decoupled ? 1 - rate * group.weight_decay : 1;
    n.gradient_rate = 0;
    n.momentum_rate = rate / (1 - std::pow(n.beta1, step));
    n.second_scale = 1 / (1 - std::pow(n.beta2, step));
    n.is_adaptive = true;
    return n;
  }

  void update(const at::Tensor& parameter, const at::Tensor& gradient, Moments& moments,
              const MomentNumbers& numbers, uint32_t step, uint32_t begin) {
    if (is_dry(parameter)) return;
    if (way_ == Way::foreach || !parameter.is_cpu()) {
      update_by_operations(parameter, gradient, moments, numbers);
    } else if (options_.state == "bf16") {
      half_moment_elements(
          {parameter.numel(), parameter.mutable_data_ptr<float>(), gradient.const_data_ptr<float>(),
           reinterpret_cast<uint16_t*>(moments.first.mutable_data_ptr<at::BFloat16>()),
           reinterpret_cast<uint16_t*>(moments.second.mutable_data_ptr<at::BFloat16>()), step,
           begin},
          numbers);
    } else {
      packed_moment_elements(
          {parameter.numel(), parameter.mutable_data_ptr<float>(), gradient.const_data_ptr<float>(),
           moments.first.mutable_data_ptr<uint8_t>(), moments.first_scale.mutable_data_ptr<float>(),
           moments.second.mutable_data_ptr<uint8_t>(),
           moments.second_scale.mutable_data_ptr<float>()},
          numbers);
    }
  }

  // On other devices: the same arithmetic on the unpacked moments of one parameter at a time.
  void update_by_operations(const at::Tensor& parameter, const at::Tensor& gradient,
                            Moments& moments, const MomentNumbers& n) {
    const at::Tensor g =
        (n.weight_decay != 0 ? gradient.add(parameter, n.weight_decay) : gradient).reshape({-1});
    at::Tensor first = unpacked(moments.first, moments.first_scale, true).slice(0, 0, g.numel());
    at::Tensor second =
        unpacked(moments.second, moments.second_scale, false).slice(0, 0, g.numel());
    first.lerp_(g, 1 - n.beta1);
    second.mul_(n.beta2).addcmul_(g, g, 1 - n.beta2);
    at::Tensor flat = parameter.view({-1});
    flat.mul_(n.kept).addcdiv_(first, (second * n.second_scale).sqrt_().add_(n.eps),
                               -n.momentum_rate);
    pack(first, true, moments.first, moments.first_scale);
    pack(second, false, moments.second, moments.second_scale);
  }

  static at::Tensor unpacked(const at::Tensor& codes, const at::Tensor& scale, bool is_signed) {
    if (!scale.defined()) return codes.to(at::kFloat);
    const at::Tensor values = table(is_signed, codes.device()).index_select(0, codes.to(at::kInt));
    return in_blocks(values).mul_(scale.unsqueeze(1)).view({-1});
  }

  static void pack(const at::Tensor& values, bool is_signed, at::Tensor& codes, at::Tensor& scale) {
    if (!scale.defined()) {
      // Stochastic: 16 random bits below the last that stays.
      const at::Tensor random =
          at::randint(0, 1 << 16, values.sizes(), values.options().dtype(at::kInt));
      codes.copy_(
          values.contiguous().view(at::kInt).add(random).bitwise_and_(-65536).view(at::kFloat));
      return;
    }
    const at::Tensor blocks = in_blocks(values);
    scale.copy_(blocks.abs().amax(1));
    const at::Tensor safe = at::where(scale > 0, scale, at::ones_like(scale));
    const at::Tensor of = table(is_signed, values.device());
    const at::Tensor bounds = (of.slice(0, 0, 255) + of.slice(0, 1, 256)) / 2;
    const at::Tensor found = at::bucketize((blocks / safe.unsqueeze(1)).view({-1}), bounds);
    codes.copy_(found.slice(0, 0, codes.numel()));
  }

  OptimizerOptions options_;
  Way way_;
  std::vector<Group> groups_;
  std::vector<std::vector<Moments>> moments_;  // per group and member
  std::unique_ptr<TensorOptimizer> rest_;
  std::vector<int64_t> begins_;  // of slices, by place in the list given at build
};

}  // namespace

std::unique_ptr<Optimizer> make_packed_adamw(const OptimizerOptions& options,
                                             const std::vector<NamedParameter>& parameters,
                                             Way way) {
  if (options.fp32_state != OptimizerOptions().fp32_state) {
    std::vector<NamedParameter> whole = parameters;
    for (NamedParameter& parameter : whole) parameter.name = parameter.rule_name();
    check_patterns("fp32_state", options.fp32_state, whole);
  }
  auto groups = make_groups(options, parameters, [&](const NamedParameter& parameter) {
    const at::Tensor& tensor = parameter.rule_tensor();
    // Blocks run in memory's order: only where that is also the order of a file.
    const bool fits = tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
    const bool is_large = tensor.numel() >= kLeastPacked;
    const bool excepted = matches_any(options.fp32_state, parameter.rule_name());
    return fits && is_large && !excepted ? kPacked : 0;
  });
  std::vector<Group> packed, rest;
  for (Group& group : groups) (group.part == kPacked ? packed : rest).push_back(std::move(group));
  std::vector<int64_t> begins;
  begins.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) begins.push_back(parameter.begin);
  return std::make_unique<PackedAdamW>(options, std::move(packed), std::move(rest), way,
                                       std::move(begins));
}

}  // namespace tanren
