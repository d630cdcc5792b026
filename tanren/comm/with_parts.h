// Runs work on ranks. If the work throws, the line of its exception ends the other ranks while the
// communicators still live. If a part were destroyed first, the others would see a closed
// connection before its cause. Called by run and by whoever splits a communicator.
#pragma once

#include "tanren/base/error_line.h"
#include "tanren/comm/communicator.h"

#include <memory>

namespace tanren {

// Returns what `work` returns. An exception from it cancels the run, and is rethrown.
template <class Work>
auto cancel_if_it_throws(Communicator& comm, const Work& work) {
  try {
    return work();
  } catch (...) {
    comm.cancel(line_of_current());
    throw;
  }
}

// Calls `work` with the part of `parent` that has the ranks of `colour`. Every rank of `parent`
// calls it. `work` keeps no reference to the part; parts of several axes nest:
//   with_parts(all, replica, [&](const auto& pipeline) {
//     with_parts(all, stage, [&](const auto& data) { … });
//   });
template <class Work>
auto with_parts(Communicator& parent, int colour, const Work& work) {
  const std::shared_ptr<Communicator> part = parent.split(colour);
  return cancel_if_it_throws(*part, [&] { return work(part); });
}

}  // namespace tanren
