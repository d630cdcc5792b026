#include "tanren/run/failure.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/memory/attempt.h"

#include <exception>
#include <filesystem>
#include <new>

namespace tanren {

namespace {

template <class... Types>
bool is_any(const std::exception& error) {
  return (... || (dynamic_cast<const Types*>(&error) != nullptr));
}

const char* cause_of(const std::exception& error) {
  if (is_any<NonFiniteError>(error)) return "non_finite";
  if (is_any<MemoryError, LimitError, c10::OutOfMemoryError, std::bad_alloc>(error)) {
    return "memory";
  }
  if (is_any<DataError>(error)) return "data";
  if (is_any<DiskError, std::filesystem::filesystem_error>(error)) return "disk";
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    return cause_of(inner);
  } catch (...) {
    return "other";
  }
  return "other";
}

}  // namespace

Failure failure_of_current() {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    try {
      end_without_memory(error);
    } catch (const MemoryError& told) {
      return {.reason = told.what(), .cause = cause_of(told)};
    }
  } catch (const Error& error) {
    return {.reason = error.what(), .cause = cause_of(error)};
  } catch (const std::exception& error) {
    return {.reason = "[run] " + line_of(error), .cause = cause_of(error)};
  } catch (...) {
    return {.reason = "[run] " + line_of_current(), .cause = "other"};
  }
}

void end_without_memory(const c10::OutOfMemoryError& error) {
  throw_memory_error(error,
                     "the model, its gradients and its optimizer state need more than there is: "
                     "raise memory.limit, or set optimizer.state = \"8bit\"");
}

}  // namespace tanren
