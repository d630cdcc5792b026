// fold_batch_norms: puts the scales of batch norms into the convolutions before them, whose weights
// then become 8-bit with the norm's scale in each channel's own. For evaluation, or for training
// with the norms in eval mode. Called by what quantises a model, before it calibrates.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"
#include "tanren/quantize/evaluation_forward.h"

#include <string>
#include <vector>

namespace tanren {

// Finds, by a dry forward on samples shaped as those of `batch`, the batch norms that normalise by
// their running statistics the result of a convolution that nothing else reads. The weight and the
// bias of the convolution are multiplied by the norm's scale, and the norm keeps its tensors, of
// which only the shift still acts: weight 1, mean 0, variance 1 - eps (without a bias the mean is
// the shift). So the predictions in eval mode stay, up to rounding. A convolution or a norm that is
// called twice, whose tensors are read elsewhere or are not fp32 or fp64, or whose scale is not
// finite stays as it is, and so does a convolution that the task returns, or whose input has no
// dimension for samples. With training_too, so does one that a training's forward reads otherwise.
// Returns the names of the weights of the convolutions, in the order of the forward. Throws an
// Error if the forward needs values. At most one dry run per process (dry_scope.h).
std::vector<std::string> fold_batch_norms(const Task& task, const Batch& batch,
                                          Forwards forwards = Forwards::predictions);

}  // namespace tanren
