// Connecting the engines of ranks that have met, which has no abort: it runs on a thread of its own, and
// who waits for it hears of a rank that is lost meanwhile.
#pragma once

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/rendezvous.h"
#include "tanren/comm/run_detached.h"

#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <utility>

namespace tanren {

// What `connect` returns, which must own what it uses: where news end the wait, its thread goes on alone
// until its time is over. CommError: the news, or "<failure>: <its error>", which is then the news of
// all.
template <class Connect>
auto connected(const Rendezvous& rendezvous, const std::string& failure, Connect connect) {
  auto group = run_detached(std::move(connect));
  while (group.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    if (const auto news = rendezvous.control->news()) throw CommError(*news);
  }
  try {
    return group.get();
  } catch (const std::exception& error) {
    // A broken connection comes before the news of the rank that broke it.
    if (const auto news = rendezvous.control->news(std::chrono::seconds(2))) throw CommError(*news);
    const std::string text = failure + ": " + first_line(error.what());
    rendezvous.control->fail(text);
    throw CommError(text);
  }
}

}  // namespace tanren
