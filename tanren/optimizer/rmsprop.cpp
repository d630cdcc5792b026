#include "tanren/optimizer/element_rule.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

// RMSprop (Tieleman & Hinton, 2012) as torch.optim.RMSprop, except that a centred variance which
// rounding makes negative counts as zero.
class RmspropRule final : public ElementRule {
 public:
  explicit RmspropRule(const OptimizerOptions& options)
      : alpha_(options.alpha),
        eps_(*options.eps),
        momentum_(*options.momentum),
        is_centered_(options.centered) {}

  std::vector<std::string> moments() const override {
    return {"square_avg", momentum_ != 0 ? "momentum_buffer" : "", is_centered_ ? "grad_avg" : ""};
  }

  void apply_elements(const TensorLists& lists, const ElementUpdate& update) const override {
    const RmspropNumbers numbers{update.learning_rate, update.weight_decay, alpha_, eps_, momentum_,
                                 is_centered_};
    for_each_member(lists, [&](const auto& elements) { rmsprop_elements(elements, numbers); });
  }

  void apply_foreach(const TensorLists& lists, const ElementUpdate& update) const override {
    const TensorVector gradients = decayed_gradients(lists, update.weight_decay);
    at::_foreach_mul_(lists.first, alpha_);
    at::_foreach_addcmul_(lists.first, gradients, gradients, 1 - alpha_);
    TensorVector divisors;
    if (is_centered_) {
      at::_foreach_lerp_(lists.third, gradients, 1 - alpha_);
      divisors = at::_foreach_addcmul(lists.first, lists.third, lists.third, -1);
      at::_foreach_clamp_min_(divisors, 0);
      at::_foreach_sqrt_(divisors);
    } else {
      divisors = at::_foreach_sqrt(lists.first);
    }
    at::_foreach_add_(divisors, eps_);
    if (momentum_ != 0) {
      at::_foreach_mul_(lists.second, momentum_);
      at::_foreach_addcdiv_(lists.second, gradients, divisors);
      at::_foreach_add_(lists.parameters, lists.second, -update.learning_rate);
    } else {
      at::_foreach_addcdiv_(lists.parameters, gradients, divisors, -update.learning_rate);
    }
  }

 private:
  double alpha_, eps_, momentum_;
  bool is_centered_;
};

}  // namespace

std::unique_ptr<ElementRule> make_rmsprop_rule(const OptimizerOptions& options) {
  return std::make_unique<RmspropRule>(options);
}

}  // namespace tanren
