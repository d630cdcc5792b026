#include "tanren/optimizer/adamw.h"

#include "tanren/base/error.h"
#include "tanren/config/kinds.h"
#include "tanren/optimizer/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

namespace tanren {
namespace {

class AdamW final : public TensorOptimizer {
 public:
  AdamW(const OptimizerOptions& options, std::vector<Group> groups)
      : options_(options), groups_(std::move(groups)) {
    for (Group& group : groups_) {
      group.all.first = zeros_like_all(group.all.parameters);
      group.all.second = zeros_like_all(group.all.parameters);
      if (options_.amsgrad) group.all.third = zeros_like_all(group.all.parameters);
      const int64_t members = static_cast<int64_t>(group.names.size());
      group.all_steps = at::zeros(
          {members}, group.all.parameters[0].options().dtype(at::kFloat).requires_grad(false));
      group.all.steps = group.all_steps.unbind();
    }
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    std::optional<at::Tensor> found_inf;
    if (input.found_inf.defined() && input.found_inf.numel() == 1) found_inf = input.found_inf;
    for (Group& group : groups_) {
      if (group.refresh(input) == 0) continue;
      const TensorLists& lists = group.select(group.present);
      advance(group, lists, found_inf);
      const auto fused = [&](auto&& kernel) {
        call_fused(lists, [&](const TensorLists& given) {
          kernel(given.parameters, given.gradients, given.first, given.second, given.third,
                 given.steps, input.learning_rate * group.learning_rate_scale, options_.beta1,
                 *options_.beta2, group.weight_decay, *options_.eps, options_.amsgrad,
                 /*maximize=*/false, /*grad_scale=*/std::nullopt, found_inf);
        });
      };
      if (!decouples_decay(options_)) {
        fused([](auto&&... given) { at::_fused_adam_(given...); });
      } else {
        fused([](auto&&... given) { at::_fused_adamw_(given...); });
      }
    }
  }

  NamedTensors named() const override {
    NamedTensors tensors;
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.names.size(); ++i) {
        tensors.emplace_back(group.names[i] + ".exp_avg", group.all.first[i]);
        tensors.emplace_back(group.names[i] + ".exp_avg_sq", group.all.second[i]);
        if (options_.amsgrad) {
          tensors.emplace_back(group.names[i] + ".max_exp_avg_sq", group.all.third[i]);
        }
        tensors.emplace_back(group.names[i] + ".step", group.all.steps[i]);
      }
    }
    return tensors;
  }

 private:
  // Call this before the kernel, which reads the steps but does not advance them. A skipped update
  // must not count; taking its step back before the kernel is safe, because with the flag set the
  // kernel returns before it reads the steps.
  static void advance(Group& group, const TensorLists& lists,
                      const std::optional<at::Tensor>& found_inf) {
    if (&lists == &group.all) {
      group.all_steps.add_(1);
      if (found_inf) group.all_steps.sub_(*found_inf);
      return;
    }
    at::_foreach_add_(lists.steps, 1);
    if (found_inf) at::_foreach_add_(lists.steps, found_inf->reshape({}), -1);
  }

  OptimizerOptions options_;
  std::vector<Group> groups_;
};

}  // namespace

std::unique_ptr<TensorOptimizer> make_adamw(const OptimizerOptions& options,
                                            std::vector<Group> groups) {
  return std::make_unique<AdamW>(options, std::move(groups));
}

}  // namespace tanren
