#include "tanren/optimizer/element_optimizer.h"

#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>

namespace tanren {
namespace {

class ElementOptimizer final : public TensorOptimizer {
 public:
  ElementOptimizer(const OptimizerOptions& options, const std::vector<NamedParameter>& parameters,
                   std::unique_ptr<ElementRule> rule, Way way)
      : rule_(std::move(rule)), way_(way), groups_(make_groups(options, parameters)) {
    const auto moments = rule_->moments();
    for (Group& group : groups_) {
      for (size_t m = 0; m < moments.size(); ++m) {
        if (moments[m].empty()) continue;
        TensorVector& list = *lists_of(group)[m];
        list = zeros_like_all(group.all.parameters);
        if (rule_->initial_value() != 0) at::_foreach_add_(list, rule_->initial_value());
      }
      // The steps are counted on the host, as in torch, because the formulas need them there.
      const auto members = static_cast<int64_t>(group.names.size());
      group.all_steps = at::zeros({members}, at::kFloat);
      products_.push_back(at::ones({members}, at::kFloat));
    }
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    if (is_skipped(input)) return;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].refresh(input) > 0) step_group(g, input.learning_rate);
    }
  }

  NamedTensors named() const override {
    NamedTensors tensors;
    const auto moments = rule_->moments();
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      const TensorVector* lists[] = {&group.all.first, &group.all.second, &group.all.third};
      for (size_t i = 0; i < group.names.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const std::string& name = group.names[i];
        for (size_t m = 0; m < moments.size(); ++m) {
          if (!moments[m].empty()) tensors.emplace_back(name + "." + moments[m], (*lists[m])[i]);
        }
        if (rule_->counts_steps()) tensors.emplace_back(name + ".step", group.all_steps[at]);
        if (!rule_->product_name().empty()) {
          tensors.emplace_back(name + "." + rule_->product_name(), products_[g][at]);
        }
      }
    }
    return tensors;
  }

 private:
  static std::array<TensorVector*, 3> lists_of(Group& group) {
    return {&group.all.first, &group.all.second, &group.all.third};
  }

  // One call for all members with the same number of updates, which usually are all members.
  void step_group(size_t g, double learning_rate) {
    Group& group = groups_[g];
    auto* steps = group.all_steps.mutable_data_ptr<float>();
    auto* products = products_[g].mutable_data_ptr<float>();
    std::vector<uint8_t> left = group.present, now(left.size());
    for (size_t first = 0; first < left.size(); ++first) {
      if (left[first] == 0) continue;
      const float before = steps[first];
      const double step = rule_->counts_steps() ? before + 1.0 : 0.0;
      const auto factor = static_cast<float>(rule_->factor(step));
      for (size_t i = 0; i < left.size(); ++i) {
        now[i] = left[i] != 0 && steps[i] == before;
        if (now[i] == 0) continue;
        left[i] = 0;
        products[i] *= factor;
      }
      apply(group.select(now), {.learning_rate = learning_rate * group.learning_rate_scale,
                                .weight_decay = group.weight_decay,
                                .step = step,
                                .product = products[first]});
      for (size_t i = 0; i < left.size(); ++i) {
        if (now[i] != 0) steps[i] = static_cast<float>(step);
      }
    }
  }

  void apply(const TensorLists& lists, const ElementUpdate& update) const {
    const at::Tensor& one = lists.parameters.front();  // a group has one dtype and device
    const bool by_element = way_ == Way::automatic && has_cpu_kernels(one) &&
                            (one.scalar_type() == at::kFloat || one.scalar_type() == at::kDouble);
    if (by_element) {
      rule_->apply_elements(lists, update);
    } else {
      rule_->apply_foreach(lists, update);
    }
  }

  std::unique_ptr<ElementRule> rule_;
  Way way_;
  std::vector<Group> groups_;
  std::vector<at::Tensor> products_;  // per group, fp32 [members] on the CPU
};

}  // namespace

TensorVector decayed_gradients(const TensorLists& lists, double weight_decay) {
  if (weight_decay == 0) return lists.gradients;
  return at::_foreach_add(lists.gradients, lists.parameters, weight_decay);
}

std::unique_ptr<Optimizer> make_element_optimizer(const OptimizerOptions& options,
                                                  const std::vector<NamedParameter>& parameters,
                                                  std::unique_ptr<ElementRule> rule, Way way) {
  return std::make_unique<ElementOptimizer>(options, parameters, std::move(rule), way);
}

}  // namespace tanren
