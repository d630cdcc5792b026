#include "tanren/base/error_line.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <c10/util/Exception.h>

#include <new>

namespace tanren {

namespace {

constexpr const char* kUnknown = "something was thrown that is no std::exception";

}  // namespace

std::string line_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return first_line(torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
}

std::string line_of_current() {
  try {
    throw;
  } catch (const std::exception& error) {
    return line_of(error);
  } catch (...) {
    return kUnknown;
  }
}

void rethrow_known() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    return;
  }
}

std::string whole_text_of_current() {
  try {
    throw;
  } catch (const std::exception& error) {
    std::string text = error.what();
    try {
      std::rethrow_if_nested(error);
    } catch (...) {
      text += "\n" + whole_text_of_current();
    }
    return text;
  } catch (...) {
    return kUnknown;
  }
}

}  // namespace tanren
