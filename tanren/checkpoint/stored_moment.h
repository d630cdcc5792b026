// Moments of optimizer state as files hold them, packed or not, in fp32. Called where state meets torch's,
// and where it is loaded into another layout of memory.
#pragma once

#include "tanren/checkpoint/stored_state.h"

#include <string>

namespace tanren {

// What is stored as `key` ("exp_avg", or the codes of it) of a range, 1-dim in the order of memory here:
// packed numbers in fp32, others as they are. A range of codes begins with a block where its parameter
// lies in memory as it did. CheckpointError as StoredState::range.
at::Tensor moment_of(const StoredState& stored, const StateRange& wanted, const std::string& key);

}  // namespace tanren
