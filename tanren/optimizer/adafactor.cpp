#include "tanren/optimizer/adafactor.h"

#include "tanren/optimizer/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {
namespace {

double smallest_step(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return std::numeric_limits<double>::epsilon();
    case at::kBFloat16: return 0x1p-7;
    case at::kHalf: return 0x1p-10;
    default: return std::numeric_limits<float>::epsilon();
  }
}

// Root mean square, 0-dim.
at::Tensor rms(const at::Tensor& tensor) {
  return tensor.norm(2).div_(std::sqrt(static_cast<double>(tensor.numel())));
}

// Mean of the squares along `dim`, kept.
at::Tensor mean_square(const at::Tensor& tensor, int64_t dim) {
  return tensor.norm(2, {dim}, /*keepdim=*/true)
      .square_()
      .div_(static_cast<double>(tensor.size(dim)));
}

class Adafactor final : public TensorOptimizer {
 public:
  Adafactor(const OptimizerOptions& options, const std::vector<NamedParameter>& parameters)
      : options_(options), groups_(make_groups(options, parameters)) {
    for (Group& group : groups_) {
      for (const at::Tensor& parameter : group.all.parameters) {
        const auto zeros = [&](std::vector<int64_t> sizes) {
          return at::zeros(sizes, parameter.options().requires_grad(false));
        };
        auto rows = parameter.sizes().vec(), columns = rows;
        if (parameter.dim() < 2) {
          group.all.first.push_back(at::zeros_like(parameter.detach()));
          group.all.second.emplace_back();
          continue;
        }
        rows.end()[-1] = columns.end()[-2] = 1;
        group.all.first.push_back(zeros(rows));
        group.all.second.push_back(zeros(columns));
      }
      group.all_steps = at::zeros({static_cast<int64_t>(group.names.size())}, at::kFloat);
    }
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    if (is_skipped(input)) return;
    for (Group& group : groups_) {
      if (group.refresh(input) == 0) continue;
      auto* steps = group.all_steps.mutable_data_ptr<float>();
      const double rate = input.learning_rate * group.learning_rate_scale;
      for (size_t i = 0; i < group.names.size(); ++i) {
        if (group.present[i] != 0) update(group, i, rate, steps[i] += 1);
      }
    }
  }

  NamedTensors named() const override {
    NamedTensors tensors;
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.names.size(); ++i) {
        const bool is_factored = group.all.second[i].defined();
        const std::string& name = group.names[i];
        tensors.emplace_back(name + (is_factored ? ".row_var" : ".variance"), group.all.first[i]);
        if (is_factored) tensors.emplace_back(name + ".col_var", group.all.second[i]);
        tensors.emplace_back(name + ".step", group.all_steps[static_cast<int64_t>(i)]);
      }
    }
    return tensors;
  }

 private:
  // Nothing is read from the device: results that depend on tensor values stay 0-dim tensors.
  void update(Group& group, size_t i, double learning_rate, double step) const {
    at::Tensor parameter = group.all.parameters[i];
    if (parameter.numel() == 0) return;
    const at::Tensor& gradient = group.all.gradients[i];
    const double fresh = std::pow(step, options_.beta2_decay);
    at::Tensor size;
    if (options_.relative_step) {
      size = rms(parameter).clamp_min_(options_.scale_floor);
      size.mul_(std::min(learning_rate, 1 / std::sqrt(step)));
    } else {
      size = at::full({}, learning_rate, parameter.options().requires_grad(false));
    }
    if (group.weight_decay != 0) parameter.mul_(1 - learning_rate * group.weight_decay);
    const at::Tensor change = direction(group, i, gradient, fresh);
    // torch's order: divide the step size by the clipping divisor, then add once.
    size.div_(rms(change).div_(options_.clip_threshold).clamp_min_(1));
    parameter.addcmul_(change, size, -1);
  }

  // Updates the second moment with the gradient; returns the gradient over the moment's root.
  static at::Tensor direction(Group& group, size_t i, const at::Tensor& gradient, double fresh) {
    const double eps = smallest_step(gradient);
    at::Tensor estimate;
    if (group.all.second[i].defined()) {
      at::Tensor rows = group.all.first[i], columns = group.all.second[i];
      rows.lerp_(mean_square(gradient, -1), fresh);
      columns.lerp_(mean_square(gradient, -2), fresh);
      estimate = rows.matmul(columns);
      estimate.div_(rows.mean({-2}, /*keepdim=*/true).clamp_min_(eps));
    } else {
      at::Tensor variance = group.all.first[i];
      estimate = variance.lerp_(gradient.square(), fresh).clone();
    }
    return estimate.clamp_min_(eps * eps).rsqrt_().mul_(gradient);
  }

  OptimizerOptions options_;
  std::vector<Group> groups_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const OptimizerOptions& options,
                                          const std::vector<NamedParameter>& parameters) {
  return std::make_unique<Adafactor>(options, parameters);
}

}  // namespace tanren
