// A table of a model's modules: output shapes, parameters, multiply-adds and activations of each.
// Found by a dry run (dry/dry_scope.h): no weight is allocated, so even a large model takes no
// time. Not thread-safe; make one table at a time. Called by forecast/model_table for
// `tanren summary` and by forecast/first_step for run.debug.
//
// Note [Who owns an operator]
// libtorch's C++ modules have no hooks, so operators are matched with modules afterwards. An
// operator that takes a parameter or buffer belongs to the module that registered it. Any other
// operator belongs to a module without parameters of the operator's kind (relu to a ReLU), if one
// is registered between the operator's neighbours. Otherwise it belongs to the innermost module
// that holds the owners before and after it, but not outside of the block (blocks/block.h) that it
// runs in.
#pragma once

#include "tanren/base/task.h"

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tanren {

// One module; its numbers leave out those of the modules inside it.
struct LayerRow {
  std::string name;  // path from the root; the root's name is empty
  std::string type;  // its class: "Linear"
  int64_t depth = 0;
  std::vector<int64_t> output_shape;  // of the last operator inside it; empty: none ran
  c10::ScalarType output_dtype = c10::ScalarType::Undefined;
  int64_t parameters = 0;  // a parameter shared by two modules counts in the first
  c10::ScalarType parameter_dtype = c10::ScalarType::Undefined;  // of the first parameter
  int64_t trainable = 0;
  int64_t multiply_adds = 0;
  int64_t activation_bytes = 0;  // results of its operators, without views and in-place updates
  int64_t uses = 0;              // how often an operator took its parameters
};

struct LayerTable {
  std::vector<LayerRow> rows;  // in registration order, each module before those inside it
  int64_t batch = 0;           // samples
  std::vector<int64_t> input_shape;
  int64_t input_bytes = 0;  // of the field "inputs"; of all fields if the batch has none
  int64_t parameter_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t loss_bytes = 0;  // results of the loss, in no row
  std::string mismatch;    // the first operator that did not fit, in one line; empty: none

  LayerRow total() const;  // sums over the rows
};

// Makes the task and runs its prediction once, in evaluation mode, on tensors without memory with
// the shapes and dtypes of the fields of `batch`. If an operator's sizes do not fit, the table ends
// there with `mismatch` set; the model's own errors are passed on.
LayerTable layer_table(const std::function<Task()>& make_task, const Batch& batch);

// Runs a phase's forward on a batch without memory, in the scopes that it needs.
using RunForward = std::function<void(const Task&, const PhaseSpec&, const Batch&)>;

// The table of an update: makes the task and runs the forward of each phase once, in training mode.
// What a loss computes is in no row, but a layer that a loss passes through is. If something cannot
// run without values, or its sizes do not fit, the table ends there with `mismatch` set.
LayerTable training_table(const std::function<Task()>& make_task, const Batch& batch,
                          const RunForward& run);

}  // namespace tanren
