// What an error says in one line, whatever threw it: torch's errors bring their stack along, and a
// program of one's own may throw what is no std::exception. Called where code of a user was called.
#pragma once

#include <exception>
#include <string>

namespace tanren {

// The first line; of torch's errors without the stack.
std::string line_of(const std::exception& error);
// Of the exception that is being handled, of any type.
std::string line_of_current();
// All that the exception being handled says, torch's stack too, and what it was made of.
std::string whole_text_of_current();

}  // namespace tanren
