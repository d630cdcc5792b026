#include "tanren/optimizer/adamw.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>

namespace tanren {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, const std::vector<NamedParameter>& parameters)
      : options_(options), groups_(make_groups(options, parameters)) {
    for (Group& group : groups_) {
      group.all.first = zeros_like_all(group.all.parameters);
      group.all.second = zeros_like_all(group.all.parameters);
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
      at::_fused_adamw_(lists.parameters, lists.gradients, lists.first, lists.second, {},
                        lists.steps, input.learning_rate * group.learning_rate_scale,
                        options_.beta1, options_.beta2, group.weight_decay, options_.eps,
                        /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, found_inf);
    }
  }

  State state() const override {
    State state;
    for (const auto& [name, tensor] : named()) state.tensors.set(name, tensor);
    return state;
  }

  void load(const State& state) override { load_tensors(named(), state.tensors); }

 private:
  // The kernel reads the steps and never advances them; a skipped update must not count. It
  // returns before it reads them when the flag is set, so both happen ahead of it.
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

  NamedTensors named() const {
    NamedTensors tensors;
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.names.size(); ++i) {
        tensors.emplace_back(group.names[i] + ".exp_avg", group.all.first[i]);
        tensors.emplace_back(group.names[i] + ".exp_avg_sq", group.all.second[i]);
        tensors.emplace_back(group.names[i] + ".step", group.all.steps[i]);
      }
    }
    return tensors;
  }

  OptimizerOptions options_;
  std::vector<Group> groups_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options,
                                      const std::vector<NamedParameter>& parameters) {
  return std::make_unique<AdamW>(options, parameters);
}

}  // namespace tanren
