// Element rule: the update of one element from its gradient and state, for optimizers that torch
// has no fused kernel for. A rule has two implementations that agree to rounding: a single pass
// over memory (CPU, fp32 and fp64), and foreach operations (everything else). Stateless; made by
// make_optimizer and used by the element optimizer alone.
#pragma once

#include "tanren/dry/dry_scope.h"
#include "tanren/optimizer/element_kernels.h"
#include "tanren/optimizer/group.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// The numbers of one call, the same for all its parameters.
struct ElementUpdate {
  double learning_rate = 0;
  double weight_decay = 0;
  double step = 0;     // updates of these parameters, this one included; 0 if they are not counted
  double product = 1;  // product of factor() over these updates, this one included
};

class ElementRule {
 public:
  virtual ~ElementRule() = default;
  // torch's names of the state per element, in the order first, second, third; "": not used.
  virtual std::vector<std::string> moments() const = 0;
  virtual double initial_value() const { return 0; }  // of each element's state
  virtual bool counts_steps() const { return true; }
  // Name and factor of a running product that is kept per parameter; "": none.
  virtual std::string product_name() const { return ""; }
  virtual double factor(double /*step*/) const { return 1; }
  // One pass, for CPU tensors of fp32 or fp64.
  virtual void apply_elements(const TensorLists& lists, const ElementUpdate& update) const = 0;
  // The same by foreach operations, for any device and floating dtype.
  virtual void apply_foreach(const TensorLists& lists, const ElementUpdate& update) const = 0;
};

std::unique_ptr<ElementRule> make_adagrad_rule(const OptimizerOptions& options);
std::unique_ptr<ElementRule> make_lion_rule(const OptimizerOptions& options);
std::unique_ptr<ElementRule> make_nadam_rule(const OptimizerOptions& options);
std::unique_ptr<ElementRule> make_radam_rule(const OptimizerOptions& options);
std::unique_ptr<ElementRule> make_rmsprop_rule(const OptimizerOptions& options);

// Calls kernel(elements) for every member of `lists`, in its dtype.
template <typename Kernel>
void for_each_member(const TensorLists& lists, const Kernel& kernel) {
  if (!lists.parameters.empty() && is_dry(lists.parameters.front())) return;
  const auto run = [&]<typename T>(size_t i, T) {
    const auto memory = [&](const TensorVector& list) {
      return list.empty() ? nullptr : list[i].mutable_data_ptr<T>();
    };
    kernel(Elements<T>{lists.parameters[i].numel(), memory(lists.parameters),
                       lists.gradients[i].const_data_ptr<T>(), memory(lists.first),
                       memory(lists.second), memory(lists.third)});
  };
  for (size_t i = 0; i < lists.parameters.size(); ++i) {
    const bool wide = lists.parameters[i].scalar_type() == at::kDouble;
    wide ? run(i, double()) : run(i, float());  // NOLINT(bugprone-branch-clone): other kernels
  }
}

// The gradients plus weight_decay × parameter, as new tensors unless weight_decay is 0.
TensorVector decayed_gradients(const TensorLists& lists, double weight_decay);

}  // namespace tanren
