#include "tanren/train/on_ranks.h"

#include "tanren/base/names.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/train/build.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

namespace {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << " " << c10::toString(tensor.scalar_type());
  return text.str();
}

// Short names first: the user reads the first one that differs.
Facts facts_of(const RunState& run, const Plan& plan) {
  Facts facts{{"tanren", TANREN_VERSION},
              {"model.kind", plan.model.kind},
              {"precision.mode", to_text(static_cast<int64_t>(plan.precision.mode))},
              {"precision.master_weights", plan.precision.master_weights ? "true" : "false"},
              {"optimizer.kind", plan.objectives.front().optimizer.kind},
              {"parallel.zero", to_text(plan.parallel.zero)},
              {"batch.global_batch", to_text(plan.batch.global_batch)},
              {"updates per epoch", to_text(plan.batch.steps_per_epoch)},
              {"length in updates", to_text(plan.length.total_steps)},
              {"seed", to_text(static_cast<int64_t>(run.seed))},
              {"attempt", to_text(run.attempt)},
              {"epoch", to_text(run.epoch)},
              {"samples consumed", to_text(run.consumed)}};
  for (size_t i = 1; i < plan.objectives.size(); ++i) {
    const ObjectivePlan& objective = plan.objectives[i];
    facts.emplace_back("optimizer.kind of " + objective.name, objective.optimizer.kind);
  }
  if (plan.parallel.buffers == RankBuffers::synchronised) {  // then ranks run in lockstep
    facts.emplace_back("batch.microbatch", to_text(plan.batch.microbatch));
    facts.emplace_back("memory.recompute", join(plan.memory.recompute));
  }
  if (run.stage) {
    // First, since the plan's cut follows from it.
    facts.emplace_back("batch.microbatch", to_text(run.microbatch));
    facts.emplace_back("blocks", to_text(std::ssize(run.stage->blocks.blocks)));
    facts.emplace_back("parallel.cut_at", join(run.stage->first_blocks));
    facts.emplace_back("parallel.pipeline_schedule",
                       to_text(static_cast<int64_t>(run.stage->schedule)));
  }
  // Includes the tensors of other stages, which keep their shapes.
  for (const auto& [name, tensor] : tensors_of(*run.task.module)) {
    facts.emplace_back("tensor " + name, shape_of(tensor));
  }
  for (const auto& phase : run.phases) {
    for (const auto& objective : phase.objectives) {
      for (const auto& parameter : objective.all) {
        if (!parameter.tensor.requires_grad()) continue;
        facts.emplace_back("trained by " + objective.spec.name, parameter.name);
      }
      facts.emplace_back("step of " + objective.spec.name, to_text(objective.step));
      if (!objective.average) continue;
      facts.emplace_back("updates of the average of " + objective.spec.name,
                         to_text(objective.average->num_updates()));
    }
  }
  return facts;
}

// The weights that several stages hold; the same names on every rank.
std::vector<TiedTensor> tied_weights(const RunState& run) {
  std::vector<TiedTensor> tied;
  if (run.stage == nullptr) return tied;
  for (const auto& item : run.task.module->named_parameters()) {
    if (!run.stage->is_tied(item.key())) continue;
    tied.push_back({item.key(), run.stage->holders_of(item.key()),
                    run.holds(item.key()) ? item.value() : at::Tensor()});
  }
  return tied;
}

}  // namespace

void begin_alike(RunState& run, const Parts& parts) {
  if (parts.ranks->world().alone()) return;
  parts.ranks->check_alike(facts_of(run, parts.plan));
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : run.model_tensors()) tensors.push_back(tensor);
  parts.ranks->take_from(tensors, 0);
  parts.ranks->take_from_owners(tied_weights(run));
  for (auto& phase : run.phases) {
    for (auto& objective : phase.objectives) objective.optimizer->parameters_written();
  }
  TensorMap averaged;
  for (const auto* average : run.averages()) {
    if (average->num_updates() == 0) continue;  // its first update copies the weights
    for (const auto& [name, tensor] : average->state().tensors) averaged.set(name, tensor);
  }
  parts.ranks->check_equal(averaged, "at the start, the averaged weights");
  if (parts.ranks->plan().zero > 0) return;  // each rank has another part of the state
  const State optimizer = run.optimizer_state();
  parts.ranks->check_equal(optimizer.tensors, "at the start, the optimizer's state");
}

void check_weights(const RunState& run, const Parts& parts) {
  const int64_t every = parts.ranks->plan().check_every;
  if (parts.ranks->world().alone() || every <= 0 || run.step() % every != 0) return;
  run.settle();
  TensorMap weights;
  for (const auto& phase : run.phases) {
    for (const auto& objective : phase.objectives) {
      for (const auto& parameter : objective.parameters) {
        weights.set(parameter.name, parameter.tensor.detach());
      }
    }
  }
  const std::string when = fmt::format("at step {}", to_text(run.step()));
  parts.ranks->check_equal(weights, when);
  parts.ranks->check_tied(tied_weights(run), when);
}

bool on_any_rank(bool here, const RankAxis& axis) {
  return sum_numbers(axis.communicator(), {here ? 1.0 : 0.0})[0] > 0;
}

bool on_any_rank(bool here, const Ranks& ranks) { return on_any_rank(here, ranks.world()); }

void reseed(const RunState& run, const Ranks& ranks, Draws draws) {
  // Ranks that are threads share that generator, and the plan forbids drawing from it.
  if (ranks.world().alone() || ranks.plan().backend == Backend::threads) return;
  constexpr uint64_t kEvaluations = uint64_t{1} << 32;  // more than any rank
  const uint64_t first = draws == Draws::evaluation ? kEvaluations : 0;
  at::manual_seed(random_bits(run.seed, first + static_cast<uint64_t>(ranks.world().rank()),
                              static_cast<uint64_t>(run.attempt)));
}

}  // namespace tanren
