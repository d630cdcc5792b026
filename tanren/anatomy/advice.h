// Advice for a run, each piece measured: variants of its config are rehearsed on the same data, step
// about step with the run itself where memory allows. Used by anatomy/anatomy.
#pragma once

#include "tanren/anatomy/rehearsal.h"
#include "tanren/anatomy/report.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// What the run itself took.
struct BaseRun {
  std::unique_ptr<Rehearsal> rehearsal;
  std::vector<double> seconds;  // of its steps
  int64_t peak = 0;             // bytes that tensors held at most
  double loader_share = 0;      // of a step's time
};

struct AdviceFound {
  std::vector<Advice> advice;      // those that help, the largest gain first; at most ten
  std::vector<std::string> tried;  // all that ran
};

// Tries what applies to `config`. A variant that fails, or does not fit, is left out. Where both do
// not fit into memory, `base` gives up its rehearsal and its seconds stand for it.
AdviceFound advise(const RunConfig& config, const Registry& registry, BaseRun& base);

}  // namespace tanren
