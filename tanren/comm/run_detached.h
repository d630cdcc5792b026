// Work with c10d, most of which has no abort: on a thread of its own, which is left alone where nobody
// waits for it any more.
#pragma once

#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace tanren {

// What `work` returns or throws. `work` must own what it uses; all of it is gone before the answer is
// there, so that no store or socket ends on the thread after the one who waited has gone on.
template <class Work>
std::future<std::invoke_result_t<Work&>> run_detached(Work work) {
  std::promise<std::invoke_result_t<Work&>> promise;
  auto answer = promise.get_future();
  std::thread([promise = std::move(promise), work = std::optional(std::move(work))]() mutable {
    try {
      auto value = (*work)();
      work.reset();
      promise.set_value(std::move(value));
    } catch (...) {
      work.reset();
      promise.set_exception(std::current_exception());
    }
  }).detach();
  return answer;
}

}  // namespace tanren
