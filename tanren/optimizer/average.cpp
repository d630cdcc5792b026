#include "tanren/optimizer/average.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace tanren {

WeightAverage::WeightAverage(const AveragePlan& plan, const std::vector<NamedParameter>& parameters,
                             const std::vector<NamedParameter>& buffers)
    : plan_(plan), num_parameters_(parameters.size()) {
  const at::NoGradGuard no_grad;
  const auto add = [&](const NamedParameter& named) {
    if (named.tensor.element_size() < 4) {
      throw ConfigError("[average] " + named.name + " is " +
                        c10::toString(named.tensor.scalar_type()) +
                        ", in which an average stands still; keep it in fp32");
    }
    names_.push_back(named.name);
    current_.push_back(named.tensor);
    averages_.push_back(named.tensor.detach().clone(at::MemoryFormat::Preserve));
  };
  for (const auto& parameter : parameters) add(parameter);
  for (const auto& buffer : buffers) {
    if (buffer.tensor.is_floating_point()) add(buffer);
  }
}

double WeightAverage::decay_now() const {
  if (!plan_.decay_warmup) return plan_.decay;
  const auto t = static_cast<double>(num_updates_);
  return std::min(plan_.decay, (1 + t) / (10 + t));
}

void WeightAverage::refuse_if_exchanged(const char* what) const {
  if (exchanged_) {
    throw Error(std::string("[average] ") + what +
                " while the module has the averaged weights; exchange them back first");
  }
}

void WeightAverage::update(int64_t step, int64_t every) {
  refuse_if_exchanged("an update");
  // Once begun, averaging continues, also if a longer run moved the start to after this step.
  const bool has_begun = num_updates_ > 0 || step * every >= plan_.start;
  // The batches of the run up to this update, and up to the one before.
  const int64_t now_at = step * every, before = now_at - every;
  if (now_at / plan_.every == before / plan_.every || !has_begun) return;
  const at::NoGradGuard no_grad;
  if (num_updates_ == 0) {
    if (!averages_.empty()) at::_foreach_copy_(averages_, current_);
  } else {
    const double weight = plan_.kind == Averaging::swa ? 1.0 / static_cast<double>(num_updates_ + 1)
                                                       : 1.0 - decay_now();
    // With AverageBuffers::estimate the buffers are estimated when the average is used; until then
    // they are averaged too.
    const bool copies = plan_.buffers == AverageBuffers::copy && num_parameters_ < names_.size();
    const size_t averaged = copies ? num_parameters_ : names_.size();
    const at::TensorList all(averages_), now(current_);
    if (averaged > 0) at::_foreach_lerp_(all.slice(0, averaged), now.slice(0, averaged), weight);
    if (copies) at::_foreach_copy_(all.slice(averaged), now.slice(averaged));
  }
  ++num_updates_;
}

void WeightAverage::exchange() {
  if (num_updates_ == 0 && !exchanged_) return;
  for (size_t i = 0; i < current_.size(); ++i) {
    at::Tensor before = current_[i].detach();
    current_[i].set_data(averages_[i]);
    averages_[i] = std::move(before);
  }
  exchanged_ = !exchanged_;
}

State WeightAverage::state() const {
  refuse_if_exchanged("a save");
  State state;
  for (size_t i = 0; i < names_.size(); ++i) state.tensors.set(names_[i], averages_[i]);
  state.values["num_updates"] = num_updates_;
  return state;
}

void WeightAverage::load(const State& state) {
  refuse_if_exchanged("a load");
  const auto updates = value_of<int64_t>(state, "num_updates");
  NamedTensors into;
  for (size_t i = 0; i < names_.size(); ++i) into.emplace_back(names_[i], averages_[i]);
  load_tensors(into, state.tensors);
  num_updates_ = updates;
}

AverageScope::AverageScope(std::vector<WeightAverage*> averages) {
  exchanged_.reserve(averages.size());
  for (auto* average : averages) {
    if (average == nullptr || average->num_updates() == 0) continue;
    average->exchange();
    exchanged_.push_back(average);
  }
}

AverageScope::~AverageScope() {
  for (auto* average : exchanged_) average->exchange();
}

double averaging_rate(const AveragePlan& plan, int64_t step, double scheduled) {
  return plan.learning_rate > 0 && step >= plan.start ? plan.learning_rate : scheduled;
}

}  // namespace tanren
