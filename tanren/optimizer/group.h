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

// The tensors of one fused call; all lists have the same order and length. Unused lists are empty.
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
  int part = 0;                    // the value of `part_of`
  double learning_rate_scale = 1;  // product of the config group's and the layer's scale
  double weight_decay = 0;
  std::vector<size_t> index;  // each member's place among the parameters given at build
  std::vector<std::string> names;
  TensorLists all;
  at::Tensor all_steps;          // fp32 [members], so that one operation advances all of them
  std::vector<uint8_t> present;  // 1 for members that take part in this step

  // Fills `present` and the gradients; returns how many members take part. Error if a gradient's
  // layout is not its parameter's.
  size_t refresh(const StepInput& input);
  // The lists of the members whose flag is set; `all` itself if every flag is set.
  const TensorLists& select(const std::vector<uint8_t>& flags);

 private:
  TensorLists some_;
};

// The groups of `options`; groups with equal hyper-parameters and equal `part_of` (null: 0 for all)
// are merged. ConfigError as make_optimizer.
std::vector<Group> make_groups(const OptimizerOptions& options,
                               const std::vector<NamedParameter>& parameters,
                               const std::function<int(const NamedParameter&)>& part_of = {});

// ConfigError unless each of `patterns` (the value of optimizer.<key>) matches a name.
void check_patterns(const std::string& key, const std::vector<std::string>& patterns,
                    const std::vector<NamedParameter>& parameters);

// The options with one group per parameter of `parameters`. Each has the values that patterns and
// layers give the parameter in `model`. With `own_layers`, layers are counted among `parameters`
// only. ConfigError for a pattern that matches nothing in `model`.
OptimizerOptions resolved(const OptimizerOptions& options,
                          const std::vector<NamedParameter>& parameters,
                          const std::vector<NamedParameter>& model, bool own_layers = false);

// Zeros with exactly the parameter's strides.
TensorVector zeros_like_all(const TensorVector& parameters);
// Whether both have the same dtype, device and shape, and the same order of elements in memory.
bool same_layout(const at::Tensor& a, const at::Tensor& b);

// Calls a fused kernel with `lists`. On the CPU parameters and state of 16 bits are updated one
// after another in copies of fp32 and rounded back, as the kernels do on CUDA: on the CPU torch
// 2.11's fused SGD leaves most elements of 16 bits as they are (pytorch issue 191763).
void call_fused(const TensorLists& lists, const std::function<void(const TensorLists&)>& kernel);

// Names of tensors that state() returns and load() fills.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
// CheckpointError unless names, shapes and dtypes are equal.
void check_tensors(const NamedTensors& into, const TensorMap& from);
// Copies `from` into `into` by name, keeping the layout; CheckpointError as check_tensors, and
// nothing is written then.
void load_tensors(const NamedTensors& into, const TensorMap& from);

// An optimizer whose state consists of tensors only.
class TensorOptimizer : public Optimizer {
 public:
  State state() const override;
  void load(const State& state) override { load_tensors(named(), state.tensors); }
  virtual NamedTensors named() const = 0;
};

// Whether `input` has a skip flag that is set. Reads the flag on the host; for optimizers whose
// kernels take no flag.
bool is_skipped(const StepInput& input);

}  // namespace tanren
