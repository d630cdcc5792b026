#include "tanren/train/microstep.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/blocks/across_ranks.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/blocks/offload.h"
#include "tanren/blocks/recompute.h"
#include "tanren/memory/attempt.h"
#include "tanren/memory/recovery.h"
#include "tanren/parallel/sharded_parameters.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/check_terms.h"
#include "tanren/train/step_error.h"
#include "tanren/train/undo.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace tanren {

namespace {

// Per objective the parameters whose gradient is still to come; no value: all of them.
using Pending = std::vector<std::optional<std::vector<at::Tensor>>>;

// The loss is the sum of a term divided by its global count, times weight and loss scale. As a seed
// of backward this factor costs no operation and no graph.
void backward(Objective& objective, const Terms& terms, const GlobalBatch& batch,
              const std::vector<at::Tensor>& inputs, bool retain_graph) {
  std::vector<at::Tensor> roots, seeds;
  const auto add = [&](const Term& term, double weight) {
    const double count = batch.count(term.count_name);
    if (!term.sum.requires_grad() || count == 0) return;  // the update will not be applied
    if (weight == 0) return;                              // its backward would only add zeros
    const double seed = weight * objective.scaler.scale() / count;
    roots.push_back(term.sum);
    seeds.push_back(at::scalar_tensor(seed, term.sum.options().requires_grad(false)));
  };
  if (objective.spec.terms.empty()) {
    for (const auto& term : terms) add(term, objective.weight_of(term.name));
  }
  for (const auto& [name, weight] : objective.spec.terms) {
    for (const auto& term : terms) {
      if (term.name == name) add(term, weight);
    }
  }
  if (roots.empty()) return;
  torch::autograd::backward(roots, seeds, retain_graph, /*create_graph=*/false, inputs);
}

void backward_pending(Phase& phase, const RunState& run, const Terms& terms, const Pending& pending,
                      const GlobalBatch& batch) {
  std::vector<size_t> due;
  for (size_t i = 0; i < phase.objectives.size(); ++i) {
    const bool is_done = pending[i] && pending[i]->empty();
    if (phase.objectives[i].in_turn && !is_done) due.push_back(i);
  }
  // torch takes an empty list of inputs as all leaves. Naming them costs a little, so they are
  // named only if some are done already, or if another objective's parameters may hang on the same
  // graph.
  const bool shared_graph = run.has_several_objectives();
  for (const size_t i : due) {
    auto& objective = phase.objectives[i];
    const auto& all = shared_graph ? objective.gradients.parameters() : std::vector<at::Tensor>{};
    backward(objective, terms, batch, pending[i] ? *pending[i] : all,
             /*retain_graph=*/i != due.back());
  }
}

// The parameters that are still to come after a backward that broke off.
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

// Null if nothing is recomputed. A phase's forward may pass through layers of any objective.
std::unique_ptr<RecomputeScope> recompute_scope(const RunState& run,
                                                const std::vector<std::string>& patterns) {
  if (patterns.empty()) return nullptr;
  std::vector<at::Tensor> buffers;
  for (const auto& phase : run.phases) {
    for (const auto& objective : phase.objectives) {
      for (const auto& buffer : objective.buffers) buffers.push_back(buffer.tensor);
    }
  }
  return std::make_unique<RecomputeScope>(patterns, std::move(buffers));
}

// Null if nothing is offloaded.
std::unique_ptr<OffloadScope> offload_scope(const Batch& piece, const StepContext& context) {
  const MemoryPlan& plan = context.parts.plan.memory;
  if (plan.offload.empty()) return nullptr;
  const auto& module = *context.run.task.module;
  OffloadOptions options{.patterns = plan.offload,
                         .device = context.parts.device,
                         .min_bytes = plan.offload_bytes,
                         .held = module.parameters()};
  for (const auto& buffer : module.buffers()) options.held.push_back(buffer);
  for (const auto& [name, field] : piece.fields) options.held.push_back(field);
  return std::make_unique<OffloadScope>(options);
}

// Throws ConfigError for a pattern that matches no block that the forward passed through.
void check_blocks(const char* key, const std::vector<std::string>& patterns, bool with_input) {
  for (const auto& pattern : patterns) {
    std::string blocks;
    bool found = false;
    for (const auto& passage : block_trail().passages) {
      const std::string name = block_name(passage.id);
      if (with_input && !passage.can_recompute) continue;
      found = found || matches(pattern, name);
      blocks += (blocks.empty() ? "" : ", ") + name;
    }
    if (found) continue;
    throw ConfigError(fmt::format("[memory] {}: no block matches '{}'; there are {}", key, pattern,
                                  blocks.empty() ? std::string("none in this model") : blocks));
  }
}

bool run_piece(Phase& phase, const Batch& piece, const Pending& pending, bool is_last,
               const StepContext& context);

// One transaction over `piece`, the window's last or not. After a failure the missing part is done
// in smaller ones. Gradients that were complete before the failure may be on their way to other
// ranks: they stay.
bool microstep(Phase& phase, const Batch& piece, const Pending& pending, bool is_last,
               const StepContext& context) {
  const Parts& parts = context.parts;
  Recovery& recovery = *parts.recovery;
  const Undo undo(context.run, /*with_generators=*/true);
  for (Objective* objective : phase.in_turn()) objective->gradients.begin_microstep();
  recovery.begin();
  bool in_backward = false;
  const auto work = [&] {
    const BlockTrailScope trail;
    const AcrossRanksScope across_ranks(parts.ranks->across_ranks());
    const RandomScope random(context.run.seed_of(phase), context.run.attempt, piece.ids);
    Terms terms;
    {
      const MemoryScope memory(MemoryKind::activations);
      const auto recompute = recompute_scope(context.run, parts.plan.memory.recompute);
      const auto offload = offload_scope(piece, context);
      WaitOnUse parameters(context.run.gathering());  // forward begins before all have arrived
      const AutocastScope autocast(parts.device.type(), parts.plan.precision);
      terms = phase.spec.forward(piece);
      check_terms(phase, terms);
      check_gradients_kept(phase);
      parameters.finish();
      check_blocks("memory.recompute", parts.plan.memory.recompute, /*with_input=*/true);
      check_blocks("memory.offload", parts.plan.memory.offload, /*with_input=*/false);
    }
    const MemoryScope memory(MemoryKind::temporaries);
    std::optional<SyncScope> sync;
    if (phase.reducer) sync.emplace(*phase.reducer, is_last);
    in_backward = true;
    backward_pending(phase, context.run, terms, pending, context.batch);
    context.losses.add(terms, piece.size());
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
  recovery.failed(piece.size(), *shortage);
  incident.next_microbatch = recovery.size(piece.size());
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
    const int64_t end = std::min(begin + context.parts.recovery->size(planned), piece.size());
    const Batch part = begin == 0 && end == piece.size() ? piece : piece.slice(begin, end);
    const bool last_part = is_last && end == piece.size();
    if (!microstep(phase, part, pending, last_part, context)) return false;
    begin = end;
  }
  return true;
}

// If batch norm sees the samples of all ranks, each rank makes as many microsteps as the one with
// the most samples. Shares differ by one at most, so that all microsteps but the last are full on
// every rank; the last may be short, or empty, which adds nothing.
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
  if (context.parts.ranks->across_ranks() != nullptr) {
    run_in_step(phase, piece, context);
    return true;
  }
  return run_piece(phase, piece, Pending(phase.objectives.size()), /*is_last=*/true, context);
}

}  // namespace tanren
