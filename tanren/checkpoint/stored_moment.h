// Reads moments of stored optimizer state, packed or not, in fp32. Called where the state is
// exchanged with torch's, and where it is loaded into another memory layout.
#pragma once

#include "tanren/checkpoint/stored_state.h"

#include <string>

namespace tanren {

// The moment stored as `key` ("exp_avg", or its codes "exp_avg_codes") of a range, 1-dim in the
// order of memory here. Packed codes and bf16 are converted to fp32, other dtypes are unchanged. A
// range of codes must begin at the start of a block if the parameter has the same memory order here
// as in the process that wrote it. CheckpointError as for StoredState::range.
at::Tensor moment_of(const StoredState& stored, const StateRange& wanted, const std::string& key);

}  // namespace tanren
