#include "tanren/optimizer/element_rule.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

// Lion (Chen et al., 2023): the sign of an interpolated momentum, decoupled weight decay.
class LionRule final : public ElementRule {
 public:
  explicit LionRule(const OptimizerOptions& options)
      : beta1_(options.beta1), beta2_(*options.beta2) {}

  std::vector<std::string> moments() const override { return {"exp_avg"}; }
  bool counts_steps() const override { return false; }

  void apply_elements(const TensorLists& lists, const ElementUpdate& update) const override {
    const LionNumbers numbers{update.learning_rate, kept(update), beta1_, beta2_};
    for_each_member(lists, [&](const auto& elements) { lion_elements(elements, numbers); });
  }

  void apply_foreach(const TensorLists& lists, const ElementUpdate& update) const override {
    TensorVector directions = at::_foreach_mul(lists.first, beta1_);
    at::_foreach_add_(directions, lists.gradients, 1 - beta1_);
    at::_foreach_sign_(directions);
    at::_foreach_mul_(lists.first, beta2_);
    at::_foreach_add_(lists.first, lists.gradients, 1 - beta2_);
    at::_foreach_mul_(lists.parameters, kept(update));
    at::_foreach_add_(lists.parameters, directions, -update.learning_rate);
  }

 private:
  static double kept(const ElementUpdate& update) {
    return 1 - update.learning_rate * update.weight_decay;
  }

  double beta1_, beta2_;
};

}  // namespace

std::unique_ptr<ElementRule> make_lion_rule(const OptimizerOptions& options) {
  return std::make_unique<LionRule>(options);
}

}  // namespace tanren
