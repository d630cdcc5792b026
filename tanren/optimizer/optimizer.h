// Optimizers: one update of named parameters from their `grad`, with torch's and tanren's kernels.
// Invariant: state is allocated at build. State with its parameter's shape also has exactly its
// strides, because the kernels pair elements by memory order and check nothing. Not thread-safe:
// one per thread. Called by train_step once per applied update, and by user-written loops.
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
  // Set only for a slice, whose `tensor` is a 1-dim view of some elements of a parameter, and which
  // has its own `name`: the parameter's name and tensor, and the slice's first element in memory
  // order. Rules by name, layer, dimensions and size apply to the whole parameter. Optimizers that
  // update element by element take slices.
  std::string whole_name = {};
  at::Tensor whole = {};
  int64_t begin = 0;
  bool decays = true;  // false: without weight decay, whatever its group says

  const std::string& rule_name() const { return whole.defined() ? whole_name : name; }
  const at::Tensor& rule_tensor() const { return whole.defined() ? whole : tensor; }
};

struct StepInput {
  double learning_rate = 0;  // of this update; a group's learning_rate_scale multiplies it
  // One flag per parameter, in the order given at build; null: all. A parameter that is not active,
  // or has no gradient, is skipped as in torch: neither the parameter nor its state changes.
  const std::vector<uint8_t>* active = nullptr;
  // Optional 1-element fp32 flag on the parameters' device: 1 leaves parameters and state bitwise
  // unchanged.
  at::Tensor found_inf = {};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the parameters in place. Error if a gradient's layout is not its parameter's.
  virtual void step(const StepInput& input) = 0;
  // State under torch's names (`<parameter>.exp_avg`, `.exp_avg_sq`, `.momentum_buffer`, `.step`).
  // The tensors are the optimizer's own, not copies: the next step changes them.
  virtual State state() const = 0;
  // Call this after other code has written the parameters. An optimizer that keeps copies of them
  // takes over those that differ.
  virtual void parameters_written() {}
  // Copies `state` in; CheckpointError if a name, shape or dtype differs from state().
  virtual void load(const State& state) = 0;
};

// Builds the optimizer named by asked.kind; with_defaults fills in unset options. A parameter takes
// the values of the first group with a matching pattern (a weight decay written in a group also
// holds for 1-dim parameters) and the rate of its layer. `model`, if given, is all parameters of
// the model in its order: patterns and layers then apply to it, so that rates do not depend on
// which parameters are frozen. It is required for slices. ConfigError for an unknown kind, or a
// pattern that matches no parameter.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& asked,
                                          const std::vector<NamedParameter>& parameters,
                                          const std::vector<NamedParameter>& model = {});

}  // namespace tanren
