// StepError: an exception of a task's own code (a forward, a loss, backward, predict), as one line
// of ours that says where it was thrown. The exception itself is nested in it. Thrown by the step
// and by evaluations.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/error.h"
#include "tanren/parallel/ranks.h"

#include <exception>
#include <string>
#include <utility>

namespace tanren {

class StepError : public RunError {
 public:
  StepError(const std::string& line, std::string said) : RunError(line), said_(std::move(said)) {}
  const std::string& said() const { return said_; }  // the exception's own message, one line

 private:
  std::string said_;
};

// The message of an exception, in one line; of a StepError, that of the exception in it.
std::string said_by(const std::exception& error);

struct Where {
  std::string work;  // "step 12, microbatch 0", "evaluation"
  const Batch& piece;
  const Ranks& ranks;
  std::string fix;  // what to fix: "forward"
  bool in_backward = false;
};

// Call this while an exception is handled: throws it again, as a StepError if it is not one of our
// errors. An error for lack of memory is thrown unchanged.
[[noreturn]] void throw_located(const Where& where);

}  // namespace tanren
