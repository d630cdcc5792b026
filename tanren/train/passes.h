// A forward, and later its backward, each with the scopes that it runs in. The transaction around
// both is in microstep.h. A forward returns what its backward needs as a value, so several
// microbatches can be in flight: other forwards and backwards may run in between on the same
// thread. Called by microstep() and by the stages of a pipeline.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/loss_seeds.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct PassContext {
  const Phase& phase;
  const RunState& run;
  const Parts& parts;
  const GlobalBatch& batch;  // that the passes are part of
};

// What a backward needs from its forward. It keeps the forward's graph alive. Phase and batch must
// outlive it.
struct ForwardPass {
  Terms terms = {};                   // with their graphs
  at::Tensor ids = {};                // of the samples
  BlockPassages blocks = {};          // that it went through
  std::vector<LossSeeds> seeds = {};  // of each objective
};

// Per objective, the parameters whose gradient is still missing; no value: all of them.
using Pending = std::vector<std::optional<std::vector<at::Tensor>>>;

// The gradient of the scaled loss with respect to the sum of a term: weight × loss scale / global
// count. Nothing else divides or scales a loss, and it is known without a forward. Empty if no
// backward begins at the term, because its weight is 0 or its global count is 0; if the count is 0,
// the update is not applied.
std::optional<double> seed_of(const Objective& objective, const std::string& term,
                              const std::string& count_name, const GlobalBatch& batch);

// Calls `forward` in the scopes of a forward on `piece`: the plan's autocast, recompute and
// offload, random draws by sample, the seeds of its backward, and other ranks' samples for batch
// norm. Parameters may still be arriving from other ranks; all have arrived when it returns. The
// returned pass has no terms.
ForwardPass in_forward(const PassContext& context, const Batch& piece,
                       const std::function<void()>& forward);
// The phase's forward on `piece`, after begin_microstep() of its gradients. Throws the ConfigErrors
// of check_terms and check_gradients_kept.
ForwardPass forward_pass(const PassContext& context, const Batch& piece);

// Calls `backward` in the scopes of the backward of `pass`. `is_last`: its gradients are the
// window's last and may be sent to other ranks.
void in_backward(const PassContext& context, ForwardPass& pass, bool is_last,
                 const std::function<void()>& backward);
// Adds the gradients of the pass's terms to the parameters that are `pending`, for each objective
// in turn. It frees the graph, so a pass has only one backward.
void backward_pass(const PassContext& context, ForwardPass& pass, const Pending& pending,
                   bool is_last);

}  // namespace tanren
