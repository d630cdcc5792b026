#include "tanren/train/microstep.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/memory/attempt.h"
#include "tanren/memory/recovery.h"
#include "tanren/train/check_blocks.h"
#include "tanren/train/passes.h"
#include "tanren/train/pipeline.h"
#include "tanren/train/step_error.h"
#include "tanren/train/undo.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tanren {

namespace {

// The parameters that an aborted backward has not reached.
Pending without_fired(const Phase& phase, const Pending& pending) {
  Pending rest;
  size_t i = 0;
  for (const auto& objective : phase.objectives) {
    const auto& gradients = objective.gradients;
    const auto& known = pending[i++];
    const auto& before = known ? *known : gradients.parameters();
    std::vector<at::Tensor> left;
    for (const auto& parameter : before) {
      if (!gradients.fired_in_microstep(parameter)) left.push_back(parameter);
    }
    rest.emplace_back(std::move(left));
  }
  return rest;
}

Incident incident_of(const Shortage& shortage, const Batch& piece, int64_t next,
                     const StepContext& context) {
  Incident incident;
  incident.attempt = context.run.attempt + 1;
  incident.step = context.run.updated_step;
  incident.operation = shortage.operation;
  incident.block = shortage.block;
  incident.in_backward = shortage.in_backward;
  incident.bytes = shortage.bytes;
  incident.message = shortage.message;
  incident.microbatch = piece.size();
  incident.next_microbatch = next;
  incident.global_batch = context.parts.plan.batch.global_batch;
  for (const auto& [name, field] : piece.fields) {
    incident.shapes.emplace_back(name, field.sizes().vec());
  }
  incident.limit_bytes = context.parts.recovery->limit();
  incident.owners = shortage.owners;
  return incident;
}

bool run_piece(Phase& phase, const Batch& piece, const Pending& pending, bool is_last,
               const StepContext& context);

// One transaction over `piece`. `is_last`: it is the window's last. After a failure the missing
// part is done in smaller transactions. Gradients that were complete before the failure are kept,
// because they may already have been sent to other ranks.
bool microstep(Phase& phase, const Batch& piece, const Pending& pending, bool is_last,
               const StepContext& context) {
  const Parts& parts = context.parts;
  Recovery& recovery = *parts.recovery;
  const Undo undo(context.run, parts.device, /*with_generators=*/true);
  for (Objective* objective : phase.in_turn()) objective->gradients.begin_microstep();
  recovery.begin();
  bool in_backward = false;
  const auto work = [&] {
    const PassContext passes{phase, context.run, parts, context.batch};
    ForwardPass pass = forward_pass(passes, piece);
    if (!phase.blocks_checked) check_blocks(parts.plan.memory, pass.blocks);
    phase.blocks_checked = true;
    in_backward = true;
    backward_pass(passes, pass, pending, is_last);
    context.losses.add(pass.terms, piece.size());
  };
  std::optional<Shortage> shortage;
  try {
    shortage = attempt(work);
  } catch (...) {
    throw_located({.work = fmt::format("step {}, microbatch {}", to_text(context.run.updated_step),
                                       to_text(context.losses.microsteps())),
                   .piece = piece,
                   .ranks = *parts.ranks,
                   .fix = in_backward ? "backward" : "forward, or the data",
                   .in_backward = in_backward});
  }
  if (!shortage) {
    recovery.fitted(piece.size());
    return true;
  }
  undo.restore_all();
  Incident incident = incident_of(*shortage, piece, 0, context);
  recovery.failed(piece.size(), *shortage, context.run.task.facts.least_samples);
  const int64_t planned = context.run.microbatch > 0 ? context.run.microbatch : piece.size();
  incident.next_microbatch = recovery.part(planned, piece.size());
  if (context.incident) context.incident(incident);
  return run_piece(phase, piece, without_fired(phase, pending), is_last, context);
}

// `piece` in microsteps of the size that memory allows.
bool run_piece(Phase& phase, const Batch& piece, const Pending& pending, bool is_last,
               const StepContext& context) {
  const int64_t planned = context.run.microbatch > 0 ? context.run.microbatch : piece.size();
  for (int64_t begin = 0; begin < piece.size();) {
    const bool may_stop = context.parts.ranks->world().alone() && context.run.phases_done == 0;
    if (begin > 0 && may_stop && context.parts.stop_requested()) return false;
    const int64_t end = begin + context.parts.recovery->part(planned, piece.size() - begin);
    const Batch part = begin == 0 && end == piece.size() ? piece : piece.slice(begin, end);
    const bool last_part = is_last && end == piece.size();
    if (!microstep(phase, part, pending, last_part, context)) return false;
    begin = end;
  }
  return true;
}

// For batch norm over the samples of all ranks: each rank makes as many microsteps as the rank with
// the most samples. Shares differ by at most one sample, so all microsteps except the last are full
// on every rank. The last may be short, or empty, and an empty one adds nothing.
void run_in_step(Phase& phase, const Batch& piece, const StepContext& context) {
  const auto all = static_cast<int64_t>(context.batch.count("samples"));
  const int64_t ranks = context.parts.ranks->data().size();
  const int64_t largest = (all + ranks - 1) / ranks;
  if (piece.size() > largest) {
    throw Error(
        fmt::format("[train] this rank has {} of {} samples, more than its share on {} ranks, and "
                    "parallel.buffers = \"synchronised\" needs equal ones; take them from a Loader "
                    "with rank and world_size",
                    piece.size(), all, ranks));
  }
  const int64_t planned =
      context.run.microbatch > 0 ? std::min(context.run.microbatch, largest) : largest;
  const Pending everything(phase.objectives.size());
  for (int64_t begin = 0; begin < largest; begin += planned) {
    const Batch part =
        piece.slice(std::min(begin, piece.size()), std::min(begin + planned, piece.size()));
    microstep(phase, part, everything, begin + planned >= largest, context);
  }
}

}  // namespace

bool accumulate_piece(Phase& phase, const Batch& piece, const StepContext& context) {
  if (context.run.stage && context.run.stage->stages() > 1) {
    accumulate_stage(phase, piece, context);
    return true;
  }
  if (context.parts.ranks->across_ranks() != nullptr) {
    run_in_step(phase, piece, context);
    return true;
  }
  return run_piece(phase, piece, Pending(phase.objectives.size()), /*is_last=*/true, context);
}

}  // namespace tanren
