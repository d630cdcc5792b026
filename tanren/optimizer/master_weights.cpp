#include "tanren/optimizer/master_weights.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/optimizer/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace tanren {
namespace {

constexpr std::string_view kCopy = ".master_weight";

bool is_narrow(const at::Tensor& tensor) { return tensor.element_size() < 4; }

class MasterWeights final : public Optimizer {
 public:
  MasterWeights(const OptimizerOptions& asked, const std::vector<NamedParameter>& parameters,
                const std::vector<NamedParameter>& model) {
    std::vector<NamedParameter> updated;
    for (const NamedParameter& parameter : parameters) {
      updated.push_back(parameter);
      if (!is_narrow(parameter.tensor)) continue;
      at::Tensor copy = at::empty_strided(parameter.tensor.sizes(), parameter.tensor.strides(),
                                          parameter.tensor.options().dtype(at::kFloat));
      copy.copy_(parameter.tensor.detach());
      updated.back().tensor = copy;
      weights_.push_back(parameter.tensor);
      copies_.push_back(copy);
      names_.push_back(parameter.name + std::string(kCopy));
    }
    inner_ = make_optimizer(asked, updated, model);
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (!copies_[i].grad().is_same(weights_[i].grad())) {
        copies_[i].mutable_grad() = weights_[i].grad();
      }
    }
    inner_->step(input);
    round();
  }

  // A copy that rounds to its weight keeps its low bits.
  void parameters_written() override {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < copies_.size(); ++i) {
      const at::Tensor weight = weights_[i].detach();
      const at::Tensor is_same = copies_[i].to(weight.scalar_type()).eq(weight);
      copies_[i].copy_(at::where(is_same, copies_[i], weight.to(at::kFloat)));
    }
    inner_->parameters_written();
  }

  State state() const override {
    State state = inner_->state();
    for (size_t i = 0; i < copies_.size(); ++i) state.tensors.set(names_[i], copies_[i]);
    return state;
  }

  void load(const State& state) override {
    State of_inner{{}, state.values}, of_copies;
    for (const auto& [name, tensor] : state.tensors) {
      (name.ends_with(kCopy) ? of_copies : of_inner).tensors.set(name, tensor);
    }
    NamedTensors copies;
    for (size_t i = 0; i < copies_.size(); ++i) copies.emplace_back(names_[i], copies_[i]);
    check_tensors(copies, of_copies.tensors);  // before anything is written
    inner_->load(of_inner);
    load_tensors(copies, of_copies.tensors);
    round();
  }

 private:
  void round() {
    const at::NoGradGuard no_grad;
    if (!weights_.empty()) at::_foreach_copy_(weights_, copies_);
  }

  std::unique_ptr<Optimizer> inner_;
  TensorVector weights_;  // of 16 bits
  TensorVector copies_;   // in fp32, in the same order
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Optimizer> make_master_weights(const OptimizerOptions& asked,
                                               const std::vector<NamedParameter>& parameters,
                                               const std::vector<NamedParameter>& model) {
  return std::make_unique<MasterWeights>(asked, parameters, model);
}

}  // namespace tanren
