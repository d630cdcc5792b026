// The optimizer's state of an objective as stored in files: in slices if ranks share it, of a
// stage's parameters alone if the model is in stages. It is loaded from the slices of any number of
// ranks, or from whole tensors. Called by RunState.
#pragma once

#include "tanren/checkpoint/exchange_slices.h"
#include "tanren/train/run_state.h"

#include <string>
#include <vector>

namespace tanren {

// The slices that this rank's state covers; `start` comes before every name.
std::vector<StateSlice> slices_in(const Objective& objective, const std::string& start);

// The part of the optimizer's state that this rank writes. The state of a parameter that several
// stages hold is written only by the owner. `start` comes before every name.
SlicedState state_to_write(const Objective& objective, const std::string& start);

// The entries of a whole state that belong to parameters which this rank's optimizer updates.
State state_of_updated(const Objective& objective, const State& whole);

// Loads the state of the objective's optimizer, each element from where it is stored.
// CheckpointError if something is missing or of another kind; then nothing has changed.
void load_ranges(Objective& objective, const std::string& start, const StoredState& stored);

// Loads only the state that is stored, converted to the optimizer's dtype; the rest stays. `start`
// comes before the parameters' names.
void load_known(Objective& objective, const std::string& start, const StoredState& stored);

// The key of the fp32 copy of a weight of 16 bits (optimizer/master_weights.h).
inline constexpr const char* kMasterWeight = "master_weight";

// Loads the state of each parameter whose whole state, except the copy of the weight, is in `given`
// below `path` (in `slices`, or whole if there are none). Converts it as load_known does, and
// unpacks packed moments. Other parameters stay unchanged. Returns the names, with `path`, of those
// that have only some state in `given` and stay unchanged.
std::vector<std::string> load_fitting(Objective& objective, const std::string& path,
                                      const State& given, const std::vector<StateSlice>& slices);

// Call this after the objective's parameters were chosen again. State that ranks kept for the
// earlier parameters goes to the ranks that keep it now; the state of other parameters stays. Every
// rank calls it at the same time. CommError.
void take_over_state(Objective& objective, const SlicedState& before, Communicator& ranks);

}  // namespace tanren
