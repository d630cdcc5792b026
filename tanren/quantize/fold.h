// fold_batch_norms: multiplies the scales of batch norms into the convolutions before them. The
// 8-bit scale of each channel then contains the norm's scale. For evaluation, or for training with
// the norms in eval mode. Called by the code that quantises a model, before it calibrates.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"
#include "tanren/quantize/evaluation_forward.h"

#include <string>
#include <vector>

namespace tanren {

// Runs a dry forward on samples shaped as those of `batch`. It finds each batch norm that uses its
// running statistics and normalises the result of a convolution that nothing else reads. The weight
// and the bias of the convolution are multiplied by the norm's scale. The norm keeps its tensors,
// but only its shift still has an effect: weight 1, mean 0, variance 1 - eps (a norm without a bias
// has the shift in its mean). Predictions in eval mode stay the same up to rounding.
// A convolution or a norm stays as it is if it is called twice, if its tensors are read elsewhere
// or are not fp32 or fp64, or if the norm's scale is not finite. A convolution also stays if the
// task returns its result, or if its input has no dimension for samples; with training_too, also if
// a training's forward reads it in another way.
// Returns the names of the convolutions' weights, in the order of the forward. Throws an Error if
// the forward needs values. At most one dry run per process (dry_scope.h).
std::vector<std::string> fold_batch_norms(const Task& task, const Batch& batch,
                                          Forwards forwards = Forwards::predictions);

}  // namespace tanren
