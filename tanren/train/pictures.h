// Pictures of what a model does, for sinks: input, target and output of the first few samples. They
// do not affect the run: eval mode, no gradients, generators and buffers restored, no communication
// between ranks. They show the averaged weights if evaluations use them and average.buffers is not
// "estimate". Called by the loop on rank 0.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/report.h"
#include "tanren/data/dataset.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

inline constexpr int64_t kShownSamples = 4;

// The first samples of a dataset, without augmentation; may be fewer than kShownSamples.
Batch shown_samples(const Dataset& dataset);

// Makes a picture of each of the batch's first kShownSamples samples, under the tags
// "<prefix>/pictures/<i>". One device read. Empty, with a line in the log, if memory runs out.
// ConfigError if the outputs are no pictures, [n, 1 or 3, h, w].
ImageReport make_pictures(const RunState& run, const Parts& parts, const Batch& batch,
                          const std::string& prefix);

// Converts pictures [n, c, h, w] in [-1, 1], c 1 or 3, to 8-bit RGB [n, h, w, 3] on the same
// device. Values outside of [-1, 1] are clamped, and NaN becomes black.
at::Tensor rgb_of(const at::Tensor& pictures);
// Whether a tensor has the shape of such pictures.
bool are_pictures(const at::Tensor& tensor);
// Throws ConfigError, naming the shape, if `outputs` has another shape or another number of
// pictures. `fix` is the advice in the error.
void check_are_pictures(const at::Tensor& outputs, int64_t samples, const std::string& fix);

}  // namespace tanren
