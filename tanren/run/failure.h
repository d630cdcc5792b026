// Why a run failed, as data for summary.json. Called by run, and by code that runs trials.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace tanren {

struct Failure {
  std::string reason;  // the error's line, as the command line prints it
  // non_finite (loss, gradients or weights), memory, data, disk (a file cannot be written or
  // reached) or other.
  std::string cause;
};

// The failure of the exception that is being handled, by its type and the types of exceptions
// nested in it. The failure of another rank (CommError) has the cause other.
Failure failure_of_current();

// Throws the MemoryError for a run that lacks memory outside of any step.
[[noreturn]] void end_without_memory(const c10::OutOfMemoryError& error);

}  // namespace tanren
