// Moves the slices of an optimizer's state between ranks, where the parameters that they share have
// changed. Called by train's choice of parameters, by every rank at once.
#pragma once

#include "tanren/checkpoint/stored_state.h"
#include "tanren/comm/communicator.h"

#include <functional>
#include <vector>

namespace tanren {

struct SlicedState {
  State state;
  std::vector<StateSlice> slices;
};

// Every rank gives what it has, and receives of all ranks' slices those that `wants`, as copies. Each
// tensor travels once to all, one after the other. CommError.
SlicedState exchange_slices(Communicator& ranks, const SlicedState& mine,
                            const std::function<bool(const StateSlice&)>& wants);

}  // namespace tanren
