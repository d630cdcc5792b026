// StepError: what a task's own code threw (a forward, a loss, backward, predict), as one line of ours
// that says where. The exception itself is nested in it. Thrown by the step and by evaluations.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/error.h"
#include "tanren/parallel/data_parallel.h"

#include <exception>
#include <string>
#include <utility>

namespace tanren {

class StepError : public RunError {
 public:
  StepError(const std::string& line, std::string said) : RunError(line), said_(std::move(said)) {}
  const std::string& said() const { return said_; }  // by whoever threw, one line

 private:
  std::string said_;
};

// What was thrown, in one line: without our words where it is a StepError.
std::string said_by(const std::exception& error);

struct Where {
  std::string work;  // "step 12, microbatch 0", "evaluation"
  const Batch& piece;
  const DataParallel& ranks;
  std::string mend;  // what is to be mended: "forward"
  bool in_backward = false;
};

// To be called while an exception is handled: throws it anew, as a StepError where its words are not
// ours. What lacks memory comes out as it is.
[[noreturn]] void throw_located(const Where& where);

}  // namespace tanren
