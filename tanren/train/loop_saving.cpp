// The part of LoopState that writes checkpoints: when they are due, before an evaluation, and
// before an error ends the run.
#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/log.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/train/endings.h"
#include "tanren/train/loop_state.h"
#include "tanren/train/on_ranks.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// Whether every rank takes part in writing a checkpoint.
bool writes_together(const Parts& parts) {
  const bool in_parts = parts.plan.parallel.zero > 0 || parts.stage != nullptr;
  return in_parts && !parts.ranks->world().alone();
}

// The parts that this rank writes. The first replica of a stage writes what all of its replicas
// have in common. Each rank writes its share of the optimizer's state.
SnapshotParts parts_to_write(const RunState& run, const Parts& parts) {
  const Ranks& ranks = *parts.ranks;
  SnapshotParts own;
  if (run.stage != nullptr) {
    own.model = {.part = ranks.data().is_first() ? ranks.pipeline().rank() : -1,
                 .parts = ranks.pipeline().size()};
    own.names = run.task.module->named_parameters().keys();
    for (const auto& item : run.task.module->named_buffers()) own.names.push_back(item.key());
  }
  const bool shares = parts.plan.parallel.zero > 0 && !ranks.data().alone();
  own.optimizer = own.model;
  if (shares) own.optimizer = {.part = ranks.world().rank(), .parts = ranks.world().size()};
  return own;
}

}  // namespace

std::filesystem::path save_checkpoint(const RunState& run, const Parts& parts,
                                      const LoopInputs& inputs, int64_t spared) {
  // Flushes the logs before the state is written, so that they are complete if possible. A log that
  // cannot be written does not prevent the checkpoint.
  std::exception_ptr unwritten;
  for (Sink* sink : inputs.sinks) {
    if (const auto failure = flush_for_checkpoint(*sink)) unwritten = failure;
  }
  Snapshot snapshot;
  snapshot.model.tensors = run.model_to_write();
  auto [optimizer, slices] = run.optimizer_to_write();
  snapshot.optimizer = std::move(optimizer);
  snapshot.slices = std::move(slices);
  snapshot.average = run.average_to_write();
  snapshot.run = run.run_state(parts.device);
  snapshot.config_toml = inputs.config_toml;
  snapshot.plan_text = inputs.plan_text;
  snapshot.origin = inputs.origin;
  std::vector<int64_t> best;
  for (const auto& ranked : run.selection.best) best.push_back(ranked.step);
  const auto& checkpoints = inputs.checkpoints;
  const int64_t keep = parts.plan.checkpoint.keep + spared;
  std::filesystem::path written;
  if (writes_together(parts)) {
    snapshot.parts = parts_to_write(run, parts);
    written = write_shared_checkpoint(checkpoints, run.step(), snapshot, keep, best,
                                      parts.ranks->world().communicator());
  } else {
    written = write_checkpoint(checkpoints, run.step(), snapshot, keep, best);
  }
  try {
    if (inputs.saved) inputs.saved();
  } catch (const std::exception& error) {
    log(fmt::format("{}; {} is complete all the same", error.what(), written.string()));
  }
  if (spared == 0) end_with_unwritten(unwritten, written);  // else another error is being handled
  return written;
}

bool LoopState::is_saved() const {
  const bool is_judged = saved_judged_ == run_.selection.judged_step;
  return saved_at_ == run_.attempt && (is_judged || !(estimates_ || decides(run_, plan_)));
}

bool LoopState::has_ruined_weights() const {
  return is_ruined(values_at_start_, worst_values(run_));
}

void LoopState::write(int64_t spared) {
  const bool together = writes_together(parts_);
  if (!(is_first_ || together) || inputs_.checkpoints.empty()) return;
  bool ruined = has_ruined_weights();
  // The read above has waited for every sum on the device. A lost rank leaves sums of buffers
  // unfinished, and the device does not report that, so this asks for lost ranks. On the CPU the
  // wait for the sum fails.
  if (!parts_.ranks->world().alone() && !parts_.device.is_cpu()) {
    parts_.ranks->world().communicator().check();
  }
  if (together) ruined = on_any_rank(ruined, *parts_.ranks);
  if (!ruined) {
    constexpr double kMargin = 1.5;  // the next save may be slower
    const Clock::time_point start = Clock::now();
    result_.checkpoint = save_checkpoint(run_, parts_, inputs_, spared);
    const double slowest = num_saves_++ > 0 ? save_seconds_ : 0;
    save_seconds_ = std::max(slowest, kMargin * seconds_since(start));
  } else if (is_first_) {
    log(fmt::format("[train] step {}: {}; no checkpoint of them is written", to_text(run_.step()),
                    kRuinedWeights));
  }
}

void LoopState::checkpoint(int64_t spared) {
  write(spared);
  saved_at_ = run_.attempt;  // on every rank, as ranks decide together by it
  saved_judged_ = run_.selection.judged_step;
}

// Works in two steps, because each may fail on one rank alone and the second communicates.
std::string LoopState::save_last() {
  const auto look = [&] {
    if (has_ruined_weights()) throw RunError(kRuinedWeights);
  };
  std::string unsaved = failure_of(look, parts_);
  if (unsaved.empty()) unsaved = failure_of([&] { checkpoint(/*spared=*/1); }, parts_);
  return unsaved;
}

std::string LoopState::keep_state() {
  const bool is_new = result_.session_attempts > 0 && !is_saved();
  if (!is_new || run_.applying || writes_together(parts_)) return "";
  try {
    if (has_ruined_weights()) return kRuinedWeights;
    checkpoint(/*spared=*/1);
    return "";
  } catch (...) {
    return line_of_current();
  }
}

std::string LoopState::last_saved() const {
  return is_first_ ? last_checkpoint_text(inputs_.checkpoints) : "";
}

void LoopState::rethrow_saved(const std::string& where) {
  const std::string unsaved = parts_.ranks->world().alone() ? keep_state() : "";
  std::string applied;
  size_t done = run_.phases_done;
  for (Phase& phase : run_.phases) {
    if (done == 0 || phase.in_turn().empty()) continue;
    applied += (applied.empty() ? "" : ", ") + phase.spec.name;
    --done;
  }
  if (!applied.empty()) applied = "; what came before it in this update stays applied: " + applied;
  rethrow_with(where + applied + unsaved_text(unsaved) + last_saved());
}

}  // namespace tanren
