#include "tanren/train/passes.h"

#include "tanren/base/memory_tag.h"
#include "tanren/base/random.h"
#include "tanren/blocks/across_ranks.h"
#include "tanren/blocks/offload.h"
#include "tanren/blocks/recompute.h"
#include "tanren/parallel/sharded_parameters.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/check_terms.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <utility>

namespace tanren {

namespace {

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
std::unique_ptr<OffloadScope> offload_scope(const Batch& piece, const PassContext& context) {
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

// Each seed is computed when it is first requested.
std::vector<LossSeeds> seeds_of(const Phase& phase, const GlobalBatch& batch) {
  std::vector<LossSeeds> seeds;
  for (const Objective& objective : phase.objectives) {
    seeds.emplace_back(
        [&objective, &batch](const std::string& term, const std::string& count_name) {
          return seed_of(objective, term, count_name, batch);
        });
  }
  return seeds;
}

// Null if the forward serves several objectives.
LossSeeds* only_seeds(ForwardPass& pass) {
  return pass.seeds.size() == 1 ? &pass.seeds.front() : nullptr;
}

// Passes each term's factor as a seed of backward, which needs no operation and no graph.
void backward_of(LossSeeds& seeds, const Terms& terms, const std::vector<at::Tensor>& inputs,
                 bool retain_graph) {
  std::vector<at::Tensor> roots, root_seeds;
  for (const auto& [name, sum, count_name] : terms) {
    if (!sum.requires_grad()) continue;
    const at::Tensor seed = seeds.of(name, count_name, sum.scalar_type(), sum.device());
    if (!seed.defined()) continue;
    roots.push_back(sum);
    root_seeds.push_back(seed);
  }
  if (roots.empty()) return;
  torch::autograd::backward(roots, root_seeds, retain_graph, /*create_graph=*/false, inputs);
}

}  // namespace

std::optional<double> seed_of(const Objective& objective, const std::string& term,
                              const std::string& count_name, const GlobalBatch& batch) {
  const double weight = objective.weight_of(term);
  if (weight == 0) return std::nullopt;  // its backward would only add zeros
  const double count = batch.count(count_name);
  if (count == 0) return std::nullopt;
  return weight * objective.scaler.scale() / count;
}

ForwardPass in_forward(const PassContext& context, const Batch& piece,
                       const std::function<void()>& forward) {
  const auto& [phase, run, parts, batch] = context;
  ForwardPass pass{.ids = piece.ids, .seeds = seeds_of(phase, batch)};
  {
    const BlockTrailScope trail(pass.blocks);
    const LossSeedsScope seeds(only_seeds(pass));
    const AcrossRanksScope across_ranks(parts.ranks->across_ranks());
    const RandomScope random(run.seed_of(phase), run.attempt, piece.ids);
    const MemoryScope memory(MemoryKind::activations);
    const auto recompute = recompute_scope(run, parts.plan.memory.recompute);
    const auto offload = offload_scope(piece, context);
    WaitOnUse parameters(run.gathering());  // forward begins before all have arrived
    const AutocastScope autocast(parts.device.type(), parts.plan.precision);
    forward();
    parameters.finish();
  }
  return pass;
}

ForwardPass forward_pass(const PassContext& context, const Batch& piece) {
  Terms terms;
  ForwardPass pass = in_forward(context, piece, [&] {
    terms = context.phase.spec.forward(piece);
    check_terms(context.phase, terms);
    check_gradients_kept(context.phase);
  });
  pass.terms = std::move(terms);
  return pass;
}

void in_backward(const PassContext& context, ForwardPass& pass, bool is_last,
                 const std::function<void()>& backward) {
  const auto& [phase, run, parts, batch] = context;
  const BlockTrailScope trail(pass.blocks);
  const LossSeedsScope seeds(only_seeds(pass));
  const AcrossRanksScope across_ranks(parts.ranks->across_ranks());
  const RandomScope random(run.seed_of(phase), run.attempt, pass.ids);
  const MemoryScope memory(MemoryKind::temporaries);
  std::optional<SyncScope> sync;
  if (phase.reducer) sync.emplace(*phase.reducer, is_last);
  backward();
}

void backward_pass(const PassContext& context, ForwardPass& pass, const Pending& pending,
                   bool is_last) {
  const Phase& phase = context.phase;
  std::vector<size_t> due;
  for (size_t i = 0; i < phase.objectives.size(); ++i) {
    const bool is_done = pending[i] && pending[i]->empty();
    if (phase.objectives[i].in_turn && !is_done) due.push_back(i);
  }
  // torch treats an empty list of inputs as all leaves. Naming the inputs costs a little, so they
  // are named only if some are already done, or if other objectives' parameters may be in the same
  // graph.
  const bool shared_graph = context.run.has_several_objectives();
  in_backward(context, pass, is_last, [&] {
    for (const size_t i : due) {
      const auto& objective = phase.objectives[i];
      const auto& all = shared_graph ? objective.gradients.parameters() : std::vector<at::Tensor>{};
      backward_of(pass.seeds[i], pass.terms, pending[i] ? *pending[i] : all,
                  /*retain_graph=*/i != due.back());
    }
  });
}

}  // namespace tanren
