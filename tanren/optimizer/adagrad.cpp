#include "tanren/optimizer/element_rule.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

// Adagrad (Duchi et al., 2011) as torch.optim.Adagrad.
class AdagradRule final : public ElementRule {
 public:
  explicit AdagradRule(const OptimizerOptions& options)
      : rate_decay_(options.learning_rate_decay),
        initial_(options.initial_accumulator),
        eps_(*options.eps) {}

  std::vector<std::string> moments() const override { return {"sum"}; }
  double initial_value() const override { return initial_; }

  void apply_elements(const TensorLists& lists, const ElementUpdate& update) const override {
    const AdagradNumbers numbers{rate(update), update.weight_decay, eps_};
    for_each_member(lists, [&](const auto& elements) { adagrad_elements(elements, numbers); });
  }

  void apply_foreach(const TensorLists& lists, const ElementUpdate& update) const override {
    const TensorVector gradients = decayed_gradients(lists, update.weight_decay);
    at::_foreach_addcmul_(lists.first, gradients, gradients, 1);
    TensorVector divisors = at::_foreach_sqrt(lists.first);
    at::_foreach_add_(divisors, eps_);
    at::_foreach_addcdiv_(lists.parameters, gradients, divisors, -rate(update));
  }

 private:
  double rate(const ElementUpdate& update) const {
    return update.learning_rate / (1 + (update.step - 1) * rate_decay_);
  }

  double rate_decay_, initial_, eps_;
};

}  // namespace

std::unique_ptr<ElementRule> make_adagrad_rule(const OptimizerOptions& options) {
  return std::make_unique<AdagradRule>(options);
}

}  // namespace tanren
