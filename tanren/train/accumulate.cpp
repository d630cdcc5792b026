#include "tanren/train/accumulate.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/microstep.h"
#include "tanren/train/pipeline.h"
#include "tanren/train/prepared.h"

#include <memory>
#include <utility>
#include <vector>

namespace tanren {

bool accumulate(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch,
                LossMeter& losses) {
  std::vector<uint8_t> in_turn;
  for (auto& objective : phase.objectives) {
    if (objective.in_turn) objective.gradients.zero();
    in_turn.push_back(objective.in_turn ? 1 : 0);
  }
  if (phase.reducer) phase.reducer->begin(in_turn);
  const StepContext context{run, parts, batch, losses, parts.incident};
  {
    const WindowScope window(parts.plan.precision,  // each weight is cast once per window
                             parts.ranks->open_windows());
    if (!accumulate_piece(phase, prepared(batch.local, run.task, parts), context)) return false;
  }
  if (phase.reducer) phase.reducer->finish();
  if (run.stage) add_tied(phase, context);
  return true;
}

void connect_reducer(Phase& phase, const Ranks& ranks) {
  if (phase.reducer) return;
  for (const Objective& objective : phase.objectives) {
    if (objective.sharding.rank == ranks.data().rank()) continue;
    throw Error(fmt::format(
        "[train] objective {} was built for rank {}, and this is rank {} of {}; make the plan and "
        "Parts::ranks of the same ranks",
        objective.spec.name, to_text(objective.sharding.rank), to_text(ranks.data().rank()),
        to_text(ranks.data().size())));
  }
  if (ranks.data().alone()) return;
  std::vector<Gradients*> gradients;
  for (auto& objective : phase.objectives) gradients.push_back(&objective.gradients);
  phase.reducer = std::make_unique<Reducer>(std::move(gradients), ranks.data().communicator(),
                                            ranks.reducer_options());
}

}  // namespace tanren
