#include "tanren/train/train_loop.h"

#include "tanren/base/memory_tag.h"
#include "tanren/train/batch_stream.h"
#include "tanren/train/loop_state.h"

namespace tanren {

bool reached_length(const Plan& plan, int64_t step, const Cursor& at) {
  if (plan.length.steps && step >= *plan.length.steps) return true;
  if (!plan.length.epochs) return false;
  const auto& batch = plan.batch;
  const int64_t usable = batch.steps_per_epoch;  // batches per epoch, the short one if kept
  const int64_t used = (at.consumed + batch.global_batch - 1) / batch.global_batch;
  return at.epoch + (used >= usable ? 1 : 0) >= *plan.length.epochs;
}

bool finished(const RunState& run, const Plan& plan) {
  return !run.selection.end_reason(plan).empty() ||
         reached_length(plan, run.step(), {run.epoch, run.consumed});
}

bool owes_evaluation(const RunState& run, const Plan& plan) {
  return run.step() > 0 && run.selection.judged_step != run.step() &&
         (is_due(plan.evaluate.every, run.step()) || finished(run, plan));
}

Loader make_loader(const RunState& run, const Parts& parts, const Dataset& dataset) {
  const auto& plan = parts.plan;
  LoaderOptions options;
  options.global_batch = plan.batch.global_batch;
  options.keep_last = plan.batch.keep_last;
  options.shuffle = plan.data.shuffle;
  options.seed = run.seed;
  options.workers = plan.data.workers;
  options.prefetch = plan.data.prefetch;
  options.device = parts.device;
  options.rank = parts.ranks->data().rank();
  options.world_size = parts.ranks->data().size();
  return Loader(dataset, options, Cursor{run.epoch, run.consumed});
}

LoopResult train_loop(RunState& run, const Parts& parts, const LoopInputs& inputs) {
  const MustSucceedScope must_succeed;  // only microsteps and evaluations may run out of memory
  const DeviceRetryScope retries(parts.recovery->reserve());
  LoopState loop(run, parts, inputs);
  loop.begin();
  BatchStream batches(make_loader(run, parts, inputs.train), *parts.ranks);
  Ending ending = Ending::finished;
  while (!finished(run, parts.plan)) {
    if (const auto reason = loop.before_update()) {
      ending = *reason;
      break;
    }
    loop.update(loop.next_batch(batches));
  }
  return loop.end(ending);
}

}  // namespace tanren
