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

// Nothing if `work` came to its end, else what it lacked.
// Out of memory is: c10::OutOfMemoryError, std::bad_alloc, and what torch's allocators, cuBLAS and
// oneDNN say in other words (says_out_of_memory).
std::optional<Shortage> attempt(const std::function<void()>& work);

// For what was no attempt: MemoryError with what `error` says was asked for, and `advice`.
[[noreturn]] void throw_memory_error(const c10::OutOfMemoryError& error, const std::string& advice);

// Whether the message of an error says, directly or in a library's own words, that memory ran out.
bool says_out_of_memory(const std::string& message);

}  // namespace tanren
