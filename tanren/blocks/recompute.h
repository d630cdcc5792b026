// Recompute: chosen blocks keep only their input for backward. When backward reaches such a block,
// it is computed again, up to the last tensor that backward needs. Invariant: gradients are bitwise
// those of keeping everything; dropout, generators, autocast and batch-norm statistics are the same
// in the second pass as in the first. Exchanges with other ranks (across_ranks.h) are repeated. The
// step opens a RecomputeScope around a forward; run_block (block.h) uses it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tanren {

class RecomputeScope {
 public:
  // For this thread's forward: recomputes the blocks that a pattern (names.h) matches. `buffers`
  // are tensors that a forward changes as a side effect; the second pass leaves them as the first
  // one did. A block that does not name the module whose buffers it changes saves all of `buffers`.
  RecomputeScope(std::vector<std::string> patterns, std::vector<at::Tensor> buffers);
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

  // Whether this thread's scope matches the block and gradients are being recorded.
  static bool wants(std::string_view name);

 private:
  friend at::Tensor run_recomputed(const at::Tensor&,
                                   const std::function<at::Tensor(const at::Tensor&)>&,
                                   const torch::nn::Module*);
  std::vector<std::string> patterns_;
  std::vector<at::Tensor> buffers_;
  const RecomputeScope* outer_;
};

// Whether this thread is computing a recomputed block, in the first or the second pass. If so, an
// operator should not save tensors that it can make in backward without its inputs: the second pass
// runs up to the last tensor that was saved.
bool in_recomputed_block();

// Returns fn(input). The tensors that its operators save for backward are dropped, except leaves.
// Backward calls `fn` a second time, and `fn` is kept until then. It must own what it needs, or use
// only what outlives it. The second call ends early, by an exception, once it has saved all tensors
// that backward needs. `module` says that fn changes no buffers but this module's. If it is null or
// omitted, fn may change any of the scope's buffers.
at::Tensor run_recomputed(const at::Tensor& input,
                          const std::function<at::Tensor(const at::Tensor&)>& fn,
                          const torch::nn::Module* module);
at::Tensor run_recomputed(const at::Tensor& input,
                          const std::function<at::Tensor(const at::Tensor&)>& fn);

}  // namespace tanren
