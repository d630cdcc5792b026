// Recompute: blocks of a model that keep for backward their input alone, and are computed once more
// when backward reaches them, up to the last tensor that it needs. Invariant: gradients are bitwise
// those of keeping everything; dropout, the generators, autocast and batch-norm statistics are in the
// second pass what they were in the first. What reaches other ranks (across_ranks.h) does so once more.
// The step opens a RecomputeScope around a forward; run_block (block.h) asks for it.
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
  // For this thread's forward: the blocks that a pattern (names.h) matches. `buffers` are tensors that
  // a forward changes in passing; the second pass leaves them as the first one did. A block that does not
  // say whose buffers it changes remembers all of them.
  RecomputeScope(std::vector<std::string> patterns, std::vector<at::Tensor> buffers);
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

  // Whether a scope of this thread wants the block, and gradients are being recorded.
  static bool wants(std::string_view name);

 private:
  friend at::Tensor run_recomputed(const at::Tensor&,
                                   const std::function<at::Tensor(const at::Tensor&)>&,
                                   const torch::nn::Module*);
  std::vector<std::string> patterns_;
  std::vector<at::Tensor> buffers_;
  const RecomputeScope* outer_;
};

// Whether this thread computes a recomputed block, the first time or the second. What an operator can
// make in backward without its inputs it should not save then: the second pass ends with the last
// tensor that was saved.
bool in_recomputed_block();

// fn(input); what its operators save for backward is dropped, but for leaves. `fn` is kept until
// backward is done with it, and is called a second time then: what it needs it must own or outlive.
// The second call ends early, by an exception, once all has been saved that backward needs.
// `module`: fn changes no buffers but this one's; null, or none given: any of the scope's.
at::Tensor run_recomputed(const at::Tensor& input,
                          const std::function<at::Tensor(const at::Tensor&)>& fn,
                          const torch::nn::Module* module);
at::Tensor run_recomputed(const at::Tensor& input,
                          const std::function<at::Tensor(const at::Tensor&)>& fn);

}  // namespace tanren
