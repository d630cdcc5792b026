// The text of an error in one line, for any exception type: torch's errors contain their stack, and
// user code may throw something that is not a std::exception. Used around calls of user code.
#pragma once

#include <exception>
#include <string>

namespace tanren {

// The first line of the error's text, without the stack of torch's errors.
std::string line_of(const std::exception& error);
// The same for the exception that is being handled, of any type.
std::string line_of_current();
// In a catch block around user code: throws the exception being handled again if it is one of our
// errors, which name the place already, or lack of memory, which callers recover from.
void rethrow_known();
// The whole text of the exception being handled, with torch's stack and nested exceptions.
std::string whole_text_of_current();

}  // namespace tanren
