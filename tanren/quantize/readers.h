// Finds which operators read each parameter of a task when it predicts, and when it is trained, by
// dry runs (dry/dry_scope.h): there is no list of layers or models. The result says which 8-bit
// operator can read a weight, or why the weight has to stay as it is. Called by calibrations. Not
// thread-safe. As for DryScope, other threads must not make tensors meanwhile. Two readers go
// unnoticed and then read NaN: a kernel that torch's dispatcher does not see, and contiguous(),
// which copies only a replaced weight.
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
  // The 8-bit operator for it; none: it stays as it is. A weight that linears and embeddings read,
  // such as a tied head, counts as linear, because both are computed from the same bytes.
  std::optional<WeightReader> reader;
  // What reads it, or why it stays: "linear and embedding", "narrow reads it in training".
  std::string why;
  // The first of the parameter's names.
  std::string first = {};
  // A linear reads it only in training. Predictions read it only by embeddings, so they do not show
  // the range of a linear's inputs.
  bool is_linear_in_training_alone = false;
};

// Returns an entry for every name of every parameter, in the module's order. `batch` gives the
// fields, their shapes and dtypes. Runs predict and predict_rows, or the forward of each phase if
// the task has neither, in eval mode without gradients. With training_too, it always runs the
// phases' forwards: in eval mode, then in training mode with only the batch norms in eval mode. A
// weight that a prediction reads then stays if a training's forward reads it in another form.
// Flags, buffers and the CPU's generator are restored. Throws an Error if the task cannot run
// without the values of tensors, and an InputError if a parameter is 8-bit already.
std::vector<ParameterReaders> find_readers(const Task& task, const Batch& batch,
                                           Forwards forwards = Forwards::predictions);

}  // namespace tanren
