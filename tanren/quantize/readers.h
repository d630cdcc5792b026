// Which operators read each parameter of a task when it predicts, and when it is trained, found by
// one dry run (dry/dry_scope.h): there is no list of layers or models. So a weight is known that an
// operator with 8-bit weights can read, or why it has to stay as it is. Called by calibrations. Not
// thread-safe, nor while other threads make tensors, as DryScope. A kernel that torch's dispatcher
// does not see reads unseen, as does contiguous(), which copies a replaced weight alone: such a
// reader gets NaN.
#pragma once

#include "tanren/base/task.h"
#include "tanren/quantize/evaluation_forward.h"
#include "tanren/quantize/quantized_parameters.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct ParameterReaders {
  std::string name;
  // None: it stays as it is. A weight that linears and embeddings read, such as a tied head, counts
  // as linear's: both are answered from the same bytes.
  std::optional<WeightReader> reader;
  // What reads it, or why it stays: "linear and embedding", "narrow reads it in training".
  std::string why;
  // Of a parameter with several names, the first of them.
  std::string first = {};
  // Predictions read it by embeddings alone, and so show no range of a linear's inputs.
  bool is_linear_in_training_alone = false;
};

// Every parameter by every name that it has, in the module's order. `batch` gives the fields, their
// shapes and dtypes. Runs predict and predict_rows, or without both the forward of each phase, in
// eval mode without gradients; flags are restored. With training_too it runs these forwards in any
// case: a weight that a prediction reads stays if a training's forward reads it in another form.
// They run in eval mode, then in training mode, in which batch norms alone are in eval mode;
// buffers and the CPU's generator are restored. An Error if that cannot run without the values of
// tensors. An InputError if a parameter is 8-bit already.
std::vector<ParameterReaders> find_readers(const Task& task, const Batch& batch,
                                           Forwards forwards = Forwards::predictions);

}  // namespace tanren
