#include "tanren/plan/passes.h"

namespace tanren {

void plan_determinism(const Request& request, Plan& plan) {
  const auto& config = request.config;
  const bool cuda = plan.device.device != "cpu";
  plan.device.deterministic = config.run.deterministic;
  const bool wanted = config.precision.cudnn_benchmark;
  // Timed algorithm choice may differ after a resume, so it breaks bitwise repetition.
  const bool conflict = wanted && config.run.deterministic;
  plan.precision.cudnn_benchmark = wanted && !conflict && cuda;
  plan.lines.push_back(
      {"deterministic", config.run.deterministic ? "true" : "false",
       request.source("run.deterministic"),
       !cuda ? "on one kind of CPU and with this thread count a run repeats bitwise anyway"
       : config.run.deterministic ? "only kernels that repeat bitwise"
                                  : "some CUDA kernels add in no fixed order: runs and resumes "
                                    "differ in the last bits"});
  plan.lines.push_back(
      {"cudnn_benchmark", plan.precision.cudnn_benchmark ? "true" : "false",
       conflict || (wanted && !cuda) ? Source::planned
                                     : request.source("precision.cudnn_benchmark"),
       conflict
           ? "asked for, but run.deterministic wins: timed algorithms can differ after a resume"
       : !wanted ? "the same algorithms in each run"
       : cuda    ? "algorithms are timed: faster, but a resumed run may differ in the last bits"
                 : "there is no cuDNN on the CPU"});
}

}  // namespace tanren
