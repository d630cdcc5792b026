// Whether a run's weights are worth keeping. Called by train_loop before it writes a checkpoint and
// before it calls a run finished.
#pragma once

#include "tanren/train/run_state.h"

#include <map>
#include <string>

namespace tanren {

enum class Values : uint8_t { finite, infinite, nan };  // each worse than the one before

// The worst value of each of the model's parameters, trained or not, and of each average, by name.
// Buffers, such as a mask of -inf, are not included. Replicas get the same result, because they
// have the same weights. Reads the device once.
std::map<std::string, Values> worst_values(const RunState& run);

// True if a weight has become worse: no later update can fix it. A weight that holds an infinite
// value from the start, such as the logarithm of 0 among trained priors, may keep it.
bool is_ruined(const std::map<std::string, Values>& at_start,
               const std::map<std::string, Values>& now);

}  // namespace tanren
