// A forward, and later its backward, with the scopes that each runs in, apart from the transaction
// around both (microstep.h). What a forward leaves for its backward is a value, so that several
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

// What a forward leaves for its backward; as long as it lives, so does the forward's graph. Phase
// and batch outlive it.
struct ForwardPass {
  Terms terms = {};                   // with their graphs
  at::Tensor ids = {};                // of the samples
  BlockPassages blocks = {};          // that it went through
  std::vector<LossSeeds> seeds = {};  // of each objective
};

// Per objective the parameters whose gradient is still to come; no value: all of them.
using Pending = std::vector<std::optional<std::vector<at::Tensor>>>;

// The gradient of the scaled loss in the sum of a term: the term's weight times the loss scale over
// the global count. It is all that divides and scales a loss, and no forward is needed to know it.
// No value if no backward begins at the term: its weight is 0, or the global batch has none of its
// counts, and then the update is not applied.
std::optional<double> seed_of(const Objective& objective, const std::string& term,
                              const std::string& count_name, const GlobalBatch& batch);

// Calls `forward` in the scopes of a forward on `piece`: the plan's autocast, recompute and
// offload, random draws by sample, the seeds of its backward, other ranks' samples for batch norm,
// and parameters that may still be arriving; all have arrived when it returns. The pass has no
// terms.
ForwardPass in_forward(const PassContext& context, const Batch& piece,
                       const std::function<void()>& forward);
// The phase's forward on `piece`, after begin_microstep() of its gradients. ConfigError as
// check_terms and check_gradients_kept.
ForwardPass forward_pass(const PassContext& context, const Batch& piece);

// Calls `backward` in the scopes of the backward of `pass`. `is_last`: its gradients are the
// window's last and may be sent to other ranks.
void in_backward(const PassContext& context, ForwardPass& pass, bool is_last,
                 const std::function<void()>& backward);
// Adds the gradients of the pass's terms to the parameters that are `pending`, for each objective
// in turn. It uses the graph up: a pass has one backward.
void backward_pass(const PassContext& context, ForwardPass& pass, const Pending& pending,
                   bool is_last);

}  // namespace tanren
