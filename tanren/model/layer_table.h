// The modules of a model with what each computes: shapes, parameters, multiply-adds, activations.
// Found by a dry run (dry/meta_scope.h): no weight is allocated, so any size takes no time.
// Not thread-safe, one at a time. Called by forecast/model_table for `tanren summary`.
//
// Note [Who owns an operator]
// libtorch's C++ modules have no hooks, so operators are matched with modules afterwards. An
// operator that takes a parameter or buffer belongs to the module that registered it. Any other
// belongs to a module without parameters of its kind (relu to a ReLU) where one stands between its
// neighbours; else to the innermost module that holds the owners before and after it, but not
// outside of the block (blocks/block.h) that it runs in.
#pragma once

#include "tanren/base/task.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tanren {

// A module; its numbers are its own and leave out those of the modules inside it.
struct LayerRow {
  std::string name;  // path from the root, whose own is empty
  std::string type;  // its class: "Linear"
  int64_t depth = 0;
  std::vector<int64_t> output_shape;  // of the last operator inside it; empty: none ran
  int64_t parameters = 0;             // one that two modules share counts in the first
  int64_t trainable = 0;
  int64_t multiply_adds = 0;
  int64_t activation_bytes = 0;  // results of its operators; views and updates in place add none
  int64_t uses = 0;              // how often an operator took its parameters
};

struct LayerTable {
  std::vector<LayerRow> rows;  // as registered, each module before those inside it
  int64_t batch = 0;           // samples
  std::vector<int64_t> input_shape;
  int64_t input_bytes = 0;  // of "inputs"; of all fields where there is none
  int64_t parameter_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t loss_bytes = 0;  // results of the loss, in no row
  std::string mismatch;    // the first operator that did not fit, in one line; empty: none

  LayerRow total() const;  // sums over the rows
};

// Makes the task and runs its prediction once, in evaluation mode, without memory, on a batch whose
// fields have the shapes and dtypes of `batch`. A size that does not fit ends it with `mismatch`
// set; errors of the model itself pass through.
LayerTable layer_table(const std::function<Task()>& make_task, const Batch& batch);

}  // namespace tanren
