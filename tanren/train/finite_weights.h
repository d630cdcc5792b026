// Whether a run's weights are worth keeping. train_loop asks it before it writes a checkpoint, and before
// it calls a run finished.
#pragma once

#include "tanren/train/run_state.h"

#include <vector>

namespace tanren {

enum class Values : uint8_t { finite, infinite, nan };  // each worse than the one before

// The worst value of each trained weight, and of its average where there is one, always in the same
// order. Constants, such as a mask of -inf, are no weights. The same on every rank, as the weights are.
// One device read.
std::vector<Values> worst_values(const RunState& run);

// True where a weight has become worse: no later update mends it. A weight that holds an infinite value
// from the start, such as the logarithm of 0 among trained priors, may keep it.
bool is_ruined(const std::vector<Values>& at_start, const std::vector<Values>& now);

}  // namespace tanren
