// Batch norm over the samples of all ranks, forward and backward. Each rank's count, mean and
// squares about the mean are combined in fp64 as by Chan, Golub & LeVeque (1979), so that the
// statistics equal those of one rank with all samples. A rank may have any number of samples, also
// none. Inside an AcrossRanksScope in training it replaces aten::batch_norm, and so
// torch::nn::BatchNorm in a user's module. Thread-safe.
#pragma once

#include "tanren/blocks/across_ranks.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>

namespace tanren {

// After this call aten::batch_norm looks for an AcrossRanksScope first, and aten::instance_norm,
// which calls batch_norm, runs without one. Further calls do nothing.
void install_synchronised_norm();

// Statistics over all ranks, fp64: count [], mean and variance [channels].
struct JointMoments {
  at::Tensor count, mean, variance;  // variance: divided by count
};
// row, fp64: this rank's count, the channels' means, then their sums of squares about the mean.
JointMoments joint_moments(const GatherRows& gather, const at::Tensor& row);

// Converts a gather to a value that an autograd node keeps for its backward, and back; null: None.
c10::IValue keep_gather(std::shared_ptr<const GatherRows> gather);
std::shared_ptr<const GatherRows> kept_gather(const c10::IValue& value);

}  // namespace tanren
