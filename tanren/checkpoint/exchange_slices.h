// Moves slices of an optimizer's state between ranks after the set of parameters that the ranks
// share has changed. Called by train's choice of parameters, on every rank at once.
#pragma once

#include "tanren/checkpoint/stored_state.h"
#include "tanren/comm/communicator.h"

#include <functional>
#include <vector>

namespace tanren {

// Every rank gives its slices, `mine`, and receives copies of those slices of all ranks for which
// `wants` is true. Tensors are broadcast to all ranks one after the other. Throws CommError.
SlicedState exchange_slices(Communicator& ranks, const SlicedState& mine,
                            const std::function<bool(const StateSlice&)>& wants);

}  // namespace tanren
