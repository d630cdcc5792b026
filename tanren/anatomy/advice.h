// Advice for a run, each piece measured: variants of its config are rehearsed on the same data, in
// turns with the run itself if memory allows. Used by anatomy/anatomy.
#pragma once

#include "tanren/anatomy/rehearsal.h"
#include "tanren/anatomy/report.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Measurements of the run itself.
struct BaseRun {
  std::unique_ptr<Rehearsal> rehearsal;
  std::vector<double> seconds;  // one for each step
  int64_t peak = 0;             // most bytes that tensors held
  double loader_share = 0;      // of a step's time
};

// One step of the run; NonFiniteError if the guard halts it.
StepReport measured_step(Rehearsal& run, OperatorRecorder* recorder = nullptr);

struct AdviceFound {
  std::vector<Advice> advice;      // those that help, the largest gain first; at most ten
  std::vector<std::string> tried;  // all variants that were tried
};

// Tries the variants that apply to `config`. A variant that fails, or does not fit into memory,
// gives no advice. If memory does not hold two rehearsals at once, `base` drops its own, and the
// variants are compared with its recorded seconds.
AdviceFound advise(const RunConfig& config, const Registry& registry, BaseRun& base);

}  // namespace tanren
