// The optimizer's state of an objective as files have it: in slices where ranks share it, and loaded from
// the slices of any other number of ranks, or from whole tensors. Called by RunState.
#pragma once

#include "tanren/checkpoint/exchange_slices.h"
#include "tanren/train/run_state.h"

#include <string>
#include <vector>

namespace tanren {

// What this rank's state is of; `start` comes before every name.
std::vector<StateSlice> slices_in(const Objective& objective, const std::string& start);

// Loads what the objective's optimizer keeps, each element from where it is stored. CheckpointError where
// something is missing or of another kind; then nothing has changed.
void load_ranges(Objective& objective, const std::string& start, const StoredState& stored);

// The same of what is stored, in its optimizer's dtype; the rest stays. No names before the parameters'.
void load_known(Objective& objective, const StoredState& stored);

// After the objective's parameters were chosen anew: what ranks kept of those that it had before goes to
// where it is kept now; the state of the others stays. Every rank at once. CommError.
void take_over_state(Objective& objective, const SlicedState& before, Communicator& ranks);

}  // namespace tanren
