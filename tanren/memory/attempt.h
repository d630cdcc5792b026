// attempt(): runs work that may run out of memory. Invariant: when it returns, the exception and
// every frame of the work are gone, so that what they held is free; other errors pass through.
// Called by train/ around each microstep and each evaluation batch.
#pragma once

#include "tanren/memory/shortage.h"

#include <c10/util/Exception.h>

#include <functional>
#include <optional>
#include <string>

namespace tanren {

// Returns nothing if `work` finished, otherwise the allocation that failed. Out of memory means
// c10::OutOfMemoryError, std::bad_alloc, and the messages of torch's allocators, cuBLAS and oneDNN
// to that effect (says_out_of_memory).
std::optional<Shortage> attempt(const std::function<void()>& work);

// For a shortage outside of attempt(). Throws MemoryError with the request that `error` reports and
// with `advice`.
[[noreturn]] void throw_memory_error(const c10::OutOfMemoryError& error, const std::string& advice);

// Whether the message of an error says, directly or in a library's own words, that memory ran out.
bool says_out_of_memory(const std::string& message);

}  // namespace tanren
