#include "tanren/train/staged_forward.h"

#include "tanren/blocks/stage.h"

#include <ATen/core/Tensor.h>

namespace tanren {

StagedForward::StagedForward(const RunState& run, const Parts& parts)
    : plan_(*run.stage),
      wires_(plan_, parts.ranks->pipeline().communicator(), parts.device, known_) {}

void StagedForward::run(const Batch& batch, const std::function<void()>& forward) {
  at::Tensor input;
  if (plan_.stage > 0) input = wires_.start_input(batch, batch_).wait();
  StageScope scope(plan_.blocks, input);
  const StageOutput result = run_stage(scope, forward);
  if (!is_last()) wires_.send_output(result.output, batch, batch_);
  ++batch_;
}

}  // namespace tanren
