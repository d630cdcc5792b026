// Optimizers: one update of named parameters from their `grad`, on torch's fused kernels and own ones.
// Invariant: state is allocated at build, and has exactly its parameter's strides where it has its
// shape, because the kernels pair elements by memory order and check nothing. Not thread-safe: one per thread.
// Called by train_step once per applied update, and by own loops.
#pragma once

#include "tanren/base/state.h"
#include "tanren/config/run_config.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  // Of a slice, which has a 1-dim view of some elements as its tensor and a name of its own: the
  // parameter that it is of, and the first element as they lie in memory. Rules by name, layer,
  // dimensions and size are meant of the whole. Optimizers that update element by element take slices.
  std::string whole_name = {};
  at::Tensor whole = {};
  int64_t begin = 0;

  const std::string& rule_name() const { return whole.defined() ? whole_name : name; }
  const at::Tensor& rule_tensor() const { return whole.defined() ? whole : tensor; }
};

struct StepInput {
  double learning_rate = 0;  // of this update; a group's learning_rate_scale multiplies it
  // One flag per parameter, in the order given at build; null: all. A parameter that is not active,
  // or has no gradient, is skipped as in torch: neither it nor its state changes.
  const std::vector<uint8_t>* active = nullptr;
  // Optional 1-element fp32 flag on the parameters' device: 1 leaves parameters and state bitwise.
  at::Tensor found_inf = {};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the parameters in place. Error where a gradient's layout is not its parameter's.
  virtual void step(const StepInput& input) = 0;
  // State under torch's names (`<parameter>.exp_avg`, `.exp_avg_sq`, `.step`, `.momentum_buffer`, …).
  // The tensors are the optimizer's own: copy what must survive the next step.
  virtual State state() const = 0;
  // Copies `state` in; CheckpointError where a name, shape or dtype is not what state() has.
  virtual void load(const State& state) = 0;
};

// Builds the optimizer named by asked.kind; what is unset is filled in by with_defaults. A
// parameter takes the values of the first group with a matching pattern (a weight decay written in
// a group also holds for 1-dim parameters) and the rate of its layer. Patterns and layers are meant
// of `model`, all parameters of the model in its order, where it is given: so rates do not depend on
// what is frozen; of slices it must be. ConfigError for an unknown kind, or a pattern that matches no parameter.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& asked,
                                          const std::vector<NamedParameter>& parameters,
                                          const std::vector<NamedParameter>& model = {});

}  // namespace tanren
