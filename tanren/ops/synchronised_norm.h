// Batch norm over the samples of all ranks, forward and backward: each rank's count, mean and squares
// about it are joined as Chan, Golub & LeVeque (1979) do, in fp64, so that the statistics are those of
// one rank with all samples; ranks may have any number of them, also none. Within an AcrossRanksScope
// in training it takes the place of aten::batch_norm, and so of torch::nn::BatchNorm in a user's module.
// Thread-safe.
#pragma once

#include "tanren/blocks/across_ranks.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>

namespace tanren {

// From now on aten::batch_norm looks for an AcrossRanksScope first, and aten::instance_norm, which is made
// of it, closes one. Does nothing the next times.
void install_synchronised_norm();

// Of each channel over all ranks: fp64, [] and [channels].
struct JointMoments {
  at::Tensor count, mean, variance;  // variance: divided by count
};
// row: this rank's count, then by channel the means, then the sums of squares about them; fp64.
JointMoments joint_moments(const GatherRows& gather, const at::Tensor& row);

// A gather as a value that an autograd node keeps for its backward, and back; null: None.
c10::IValue keep_gather(std::shared_ptr<const GatherRows> gather);
std::shared_ptr<const GatherRows> kept_gather(const c10::IValue& value);

}  // namespace tanren
