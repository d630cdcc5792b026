#include "tanren/optimizer/element_rule.h"

#include <ATen/ATen.h>

#include <cmath>

namespace tanren {
namespace {

// Shared by NAdam and RAdam: the moments, and an update that is linear in gradient and momentum.
class MomentRule : public ElementRule {
 public:
  explicit MomentRule(const OptimizerOptions& options)
      : beta1_(options.beta1),
        beta2_(*options.beta2),
        eps_(*options.eps),
        is_decoupled_(options.decoupled_weight_decay) {}

  std::vector<std::string> moments() const override { return {"exp_avg", "exp_avg_sq"}; }

  void apply_elements(const TensorLists& lists, const ElementUpdate& update) const override {
    const MomentNumbers numbers = all_numbers(update);
    for_each_member(lists, [&](const auto& elements) { moment_elements(elements, numbers); });
  }

  void apply_foreach(const TensorLists& lists, const ElementUpdate& update) const override {
    const MomentNumbers numbers = all_numbers(update);
    const TensorVector gradients = decayed_gradients(lists, numbers.weight_decay);
    at::_foreach_lerp_(lists.first, gradients, 1 - beta1_);
    at::_foreach_mul_(lists.second, beta2_);
    at::_foreach_addcmul_(lists.second, gradients, gradients, 1 - beta2_);
    if (numbers.kept != 1) at::_foreach_mul_(lists.parameters, numbers.kept);
    if (!numbers.is_adaptive) {
      at::_foreach_add_(lists.parameters, lists.first, -numbers.momentum_rate);
      return;
    }
    TensorVector divisors = at::_foreach_mul(lists.second, numbers.second_scale);
    at::_foreach_sqrt_(divisors);
    at::_foreach_add_(divisors, eps_);
    if (numbers.gradient_rate != 0) {
      at::_foreach_addcdiv_(lists.parameters, gradients, divisors, -numbers.gradient_rate);
    }
    at::_foreach_addcdiv_(lists.parameters, lists.first, divisors, -numbers.momentum_rate);
  }

 protected:
  // Fills the rates, second_scale and is_adaptive.
  virtual void fill(const ElementUpdate& update, MomentNumbers& numbers) const = 0;

  double beta1_, beta2_, eps_;

 private:
  MomentNumbers all_numbers(const ElementUpdate& update) const {
    MomentNumbers numbers{};
    numbers.beta1 = beta1_;
    numbers.beta2 = beta2_;
    numbers.eps = eps_;
    numbers.weight_decay = is_decoupled_ ? 0 : update.weight_decay;
    numbers.kept = is_decoupled_ ? 1 - update.learning_rate * update.weight_decay : 1;
    fill(update, numbers);
    return numbers;
  }

  bool is_decoupled_;
};

// NAdam (Dozat, 2016) as torch.optim.NAdam.
class NadamRule final : public MomentRule {
 public:
  explicit NadamRule(const OptimizerOptions& options)
      : MomentRule(options), momentum_decay_(options.momentum_decay) {}

  std::string product_name() const override { return "mu_product"; }
  double factor(double step) const override {
    return beta1_ * (1 - 0.5 * std::pow(0.96, step * momentum_decay_));
  }

 private:
  void fill(const ElementUpdate& update, MomentNumbers& numbers) const override {
    const double next = factor(update.step + 1);
    numbers.gradient_rate = update.learning_rate * (1 - factor(update.step)) / (1 - update.product);
    numbers.momentum_rate = update.learning_rate * next / (1 - update.product * next);
    numbers.second_scale = 1 / (1 - std::pow(beta2_, update.step));
    numbers.is_adaptive = true;
  }

  double momentum_decay_;
};

// RAdam (Liu et al., 2020) as torch.optim.RAdam: no second moment until its variance is tractable.
class RadamRule final : public MomentRule {
 public:
  using MomentRule::MomentRule;

 private:
  void fill(const ElementUpdate& update, MomentNumbers& numbers) const override {
    const double power = std::pow(beta2_, update.step);
    const double most = 2 / (1 - beta2_) - 1;
    const double length = most - 2 * update.step * power / (1 - power);
    numbers.momentum_rate = update.learning_rate / (1 - std::pow(beta1_, update.step));
    numbers.second_scale = 1;
    numbers.is_adaptive = length > 5;
    if (!numbers.is_adaptive) return;
    const double rectified =
        std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
    numbers.momentum_rate *= rectified * std::sqrt(1 - power);
  }
};

}  // namespace

std::unique_ptr<ElementRule> make_nadam_rule(const OptimizerOptions& options) {
  return std::make_unique<NadamRule>(options);
}

std::unique_ptr<ElementRule> make_radam_rule(const OptimizerOptions& options) {
  return std::make_unique<RadamRule>(options);
}

}  // namespace tanren
