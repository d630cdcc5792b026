// Runs work with c10d, most of which has no abort, on a detached thread. The thread is left alone
// when the caller stops waiting for it.
#pragma once

#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace tanren {

// The future of what `work` returns or throws. `work` must own what it uses. It is destroyed before
// the future is ready, so that no store or socket is destroyed on that thread after the caller has
// continued.
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
