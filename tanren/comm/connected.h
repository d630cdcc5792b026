// Connects the engines of ranks that have met. Connecting has no abort, so it runs on a thread of
// its own, and the waiting thread is informed if a rank is lost meanwhile.
#pragma once

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/control/control.h"
#include "tanren/comm/run_detached.h"

#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <utility>

namespace tanren {

// Returns what `connect` returns. `connect` must own what it uses: if a failure of another rank
// ends the wait, its thread continues alone until its timeout. CommError: that failure, or
// "<failure>: <its error>", which is then reported to all ranks.
template <class Connect>
auto connected(ControlChannel& control, const std::string& failure, Connect connect) {
  auto group = run_detached(std::move(connect));
  while (group.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    if (const auto lost = control.failure()) throw CommError(*lost);
  }
  try {
    return group.get();
  } catch (const std::exception& error) {
    // A broken connection is noticed before the report of the rank that broke it arrives.
    if (const auto lost = control.failure(std::chrono::seconds(2))) {
      throw CommError(*lost);
    }
    const std::string text = failure + ": " + first_line(error.what());
    control.fail(text);
    throw CommError(text);
  }
}

}  // namespace tanren
