#include "tanren/optimizer/sgd.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/optimizer/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

namespace tanren {
namespace {

// Note [First step of SGD]
// torch's first momentum is the gradient itself, undamped. Without dampening a buffer of zeros
// gives that by the ordinary formula, so no flag is needed. With dampening each parameter has a
// flag `started`, which only an applied update may set. While any parameter has not started and a
// skip flag is given, the skip flag is read on the host.
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, const std::vector<NamedParameter>& parameters)
      : options_(options), groups_(make_groups(options, parameters)) {
    for (Group& group : groups_) {
      if (*options_.momentum != 0) group.all.first = zeros_like_all(group.all.parameters);
      started_.emplace_back(group.names.size(), keeps_flags() ? 0 : 1);
    }
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    std::optional<at::Tensor> found_inf;
    if (input.found_inf.defined() && input.found_inf.numel() == 1) found_inf = input.found_inf;
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      if (group.refresh(input) == 0) continue;
      if (!keeps_flags()) {
        call(group, group.select(group.present), input.learning_rate, false, found_inf);
        continue;
      }
      std::vector<uint8_t>& started = started_[g];
      std::vector<uint8_t> first(started.size());
      std::vector<uint8_t> later(started.size());
      for (size_t i = 0; i < started.size(); ++i) {
        first[i] = group.present[i] && !started[i];
        later[i] = group.present[i] && started[i];
      }
      call(group, group.select(later), input.learning_rate, false, found_inf);
      if (std::find(first.begin(), first.end(), 1) == first.end()) continue;
      call(group, group.select(first), input.learning_rate, true, found_inf);
      if (found_inf && read_to_host(found_inf->reshape({1}))[0] != 0) continue;
      for (size_t i = 0; i < started.size(); ++i) started[i] |= first[i];
    }
  }

  State state() const override {
    State state;
    for (const auto& [name, tensor] : named()) state.tensors.set(name, tensor);
    if (!keeps_flags()) return state;
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t i = 0; i < started_[g].size(); ++i) {
        state.values[groups_[g].names[i] + ".started"] = started_[g][i] != 0;
      }
    }
    return state;
  }

  void load(const State& state) override {
    std::vector<std::vector<uint8_t>> started = started_;
    for (size_t g = 0; keeps_flags() && g < groups_.size(); ++g) {
      for (size_t i = 0; i < started[g].size(); ++i) {
        started[g][i] = value_of<bool>(state, groups_[g].names[i] + ".started");
      }
    }
    load_tensors(named(), state.tensors);
    started_ = std::move(started);
  }

 private:
  bool keeps_flags() const { return *options_.momentum != 0 && options_.dampening != 0; }

  void call(const Group& group, const TensorLists& lists, double learning_rate, bool is_first_step,
            const std::optional<at::Tensor>& found_inf) const {
    call_fused(lists, [&](const TensorLists& given) {
      at::_fused_sgd_(given.parameters, given.gradients, given.first, group.weight_decay,
                      *options_.momentum, learning_rate * group.learning_rate_scale,
                      options_.dampening, *options_.nesterov, /*maximize=*/false, is_first_step,
                      /*grad_scale=*/{}, found_inf);
    });
  }

  NamedTensors named() const {
    NamedTensors tensors;
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.all.first.size(); ++i) {
        tensors.emplace_back(group.names[i] + ".momentum_buffer", group.all.first[i]);
      }
    }
    return tensors;
  }

  OptimizerOptions options_;
  std::vector<Group> groups_;
  std::vector<std::vector<uint8_t>> started_;  // per group and member
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options,
                                    const std::vector<NamedParameter>& parameters) {
  if (*options.nesterov && (*options.momentum <= 0 || options.dampening != 0)) {
    throw ConfigError(
        "[optimizer] nesterov needs momentum > 0 and dampening = 0; set them or "
        "nesterov = false");
  }
  return std::make_unique<Sgd>(options, parameters);
}

}  // namespace tanren
