// Group: parameters with equal hyper-parameters, dtype and device, updated by one fused call.
// The tensor lists are built once; a step only checks that each gradient is still the same tensor.
// Used by the optimizers of this room alone.
#pragma once

#include "tanren/optimizer/optimizer.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

using TensorVector = std::vector<at::Tensor>;

// What one fused call works on; all lists have the same order and length (or are unused: empty).
struct TensorLists {
  TensorVector parameters;
  TensorVector gradients;
  TensorVector first;   // exp_avg, or momentum_buffer
  TensorVector second;  // exp_avg_sq
  TensorVector third;   // max_exp_avg_sq, or grad_avg
  TensorVector steps;   // 0-dim fp32, views of Group::all_steps

  void clear();
  void append(const TensorLists& from, size_t i);
};

struct Group {
  int part = 0;                    // as `part_of` said
  double learning_rate_scale = 1;  // of its group and its layer
  double weight_decay = 0;
  std::vector<size_t> index;  // of each member among the parameters given at build
  std::vector<std::string> names;
  TensorLists all;
  at::Tensor all_steps;          // fp32 [members], so that advancing them is one operation
  std::vector<uint8_t> present;  // who takes part in this step

  // Fills `present` and the gradients; returns how many take part. Error on a wrong layout.
  size_t refresh(const StepInput& input);
  // The lists of the members whose flag is set: `all` itself where every flag is.
  const TensorLists& select(const std::vector<uint8_t>& flags);

 private:
  TensorLists some_;
};

// The groups of `options`, merged where their hyper-parameters are equal and `part_of` (null: 0
// for all) agrees. ConfigError as make_optimizer.
std::vector<Group> make_groups(const OptimizerOptions& options,
                               const std::vector<NamedParameter>& parameters,
                               const std::function<int(const NamedParameter&)>& part_of = {});

// ConfigError unless each of `patterns` (the value of optimizer.<key>) matches a name.
void check_patterns(const std::string& key, const std::vector<std::string>& patterns,
                    const std::vector<NamedParameter>& parameters);

// The options with one group for each of `parameters`, whose values are those that its patterns and
// layers in `model` give. ConfigError for a pattern that matches nothing in `model`.
OptimizerOptions resolved(const OptimizerOptions& options,
                          const std::vector<NamedParameter>& parameters,
                          const std::vector<NamedParameter>& model);

// Zeros with exactly the parameter's strides.
TensorVector zeros_like_all(const TensorVector& parameters);
// Whether both have the same shape and the same elements at the same place in memory.
bool same_layout(const at::Tensor& a, const at::Tensor& b);

// Names of tensors that state() returns and load() fills.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
// Copies `from` into `into` by name, keeping the layout; CheckpointError unless names, shapes and
// dtypes are equal. Nothing is written if anything is wrong.
void load_tensors(const NamedTensors& into, const TensorMap& from);

// An optimizer whose state is tensors alone.
class TensorOptimizer : public Optimizer {
 public:
  State state() const override;
  void load(const State& state) override { load_tensors(named(), state.tensors); }
  virtual NamedTensors named() const = 0;
};

// Whether `input` carries a skip flag that is set: read on the host, for optimizers whose kernels
// take none.
bool is_skipped(const StepInput& input);

}  // namespace tanren
