#include "tanren/optimizer/muon.h"

#include "tanren/base/names.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/optimizer/adamw.h"
#include "tanren/optimizer/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

namespace tanren {
namespace {

constexpr int kMatrix = 1;

class Muon final : public TensorOptimizer {
 public:
  Muon(const OptimizerOptions& options, std::vector<Group> matrices, std::vector<Group> others)
      : options_(options),
        groups_(std::move(matrices)),
        rest_(make_adamw(options, std::move(others))) {
    for (Group& group : groups_) group.all.first = zeros_like_all(group.all.parameters);
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    rest_->step(input);
    if (groups_.empty() || is_skipped(input)) return;
    for (Group& group : groups_) {
      if (group.refresh(input) == 0) continue;
      const TensorLists& lists = group.select(group.present);
      const double rate = input.learning_rate * group.learning_rate_scale;
      at::_foreach_lerp_(lists.first, lists.gradients, 1 - *options_.momentum);
      const TensorVector momenta =
          *options_.nesterov ? at::_foreach_lerp(lists.gradients, lists.first, *options_.momentum)
                             : lists.first;
      if (group.weight_decay != 0) {
        at::_foreach_mul_(lists.parameters, 1 - rate * group.weight_decay);
      }
      for (size_t i = 0; i < momenta.size(); ++i) {
        update(lists.parameters[i], momenta[i], rate);
      }
    }
  }

  NamedTensors named() const override {
    NamedTensors tensors = rest_->named();
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.names.size(); ++i) {
        tensors.emplace_back(group.names[i] + ".momentum_buffer", group.all.first[i]);
      }
    }
    return tensors;
  }

 private:
  void update(at::Tensor parameter, const at::Tensor& momentum, double rate) const {
    if (parameter.numel() == 0) return;
    const auto rows = static_cast<double>(parameter.size(0));
    const double columns = static_cast<double>(parameter.numel()) / rows;
    const double adjusted = options_.adjust_learning_rate == "original"
                                ? rate * std::sqrt(std::max(1.0, rows / columns))
                                : rate * 0.2 * std::sqrt(std::max(rows, columns));
    const at::Tensor change =
        orthogonalised(momentum.reshape({parameter.size(0), -1}), options_.newton_schulz_steps);
    parameter.add_(change.reshape(parameter.sizes()), -adjusted);
  }

  OptimizerOptions options_;
  std::vector<Group> groups_;
  std::unique_ptr<TensorOptimizer> rest_;
};

}  // namespace

at::Tensor orthogonalised(const at::Tensor& matrix, int64_t steps) {
  // The reference implementation's coefficients and floor, chosen there for a steep slope at 0.
  constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315, kFloor = 1e-7;
  const bool narrow = !has_cpu_kernels(matrix) && matrix.scalar_type() != at::kDouble;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = narrow ? matrix.to(at::kBFloat16) : matrix;
  if (is_tall) x = x.t();
  x = x / x.norm().clamp_min(kFloor);  // the largest singular value is at most 1
  for (int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = x.mm(x.t());
    const at::Tensor polynomial = at::addmm(gram, gram, gram, kCubic, kQuintic);
    x = at::addmm(x, polynomial, x, kLinear);
  }
  return is_tall ? x.t() : x;
}

std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options,
                                     const std::vector<NamedParameter>& parameters) {
  auto groups = make_groups(options, parameters, [&](const NamedParameter& parameter) {
    const bool is_named = matches_any(options.adamw_parameters, parameter.name);
    return parameter.tensor.dim() >= 2 && !is_named ? kMatrix : 0;
  });
  std::vector<Group> matrices, others;
  for (Group& group : groups) {
    (group.part == kMatrix ? matrices : others).push_back(std::move(group));
  }
  return std::make_unique<Muon>(options, std::move(matrices), std::move(others));
}

}  // namespace tanren
