// Offload: blocks of a model whose operators leave in host memory what they save for backward, and get
// it back when backward reaches them. Invariant: gradients are bitwise those of keeping everything, and
// a tensor that was changed in place meanwhile is an error as ever.
// Copies run beside the device's work on a stream of their own, from and to pinned memory; when backward
// reaches a block, what the block before it put away begins to come back. What stays
// on the device: parameters and their casts, what the scope is told is held anyway, small tensors, and
// small parts of large ones. The step opens an OffloadScope around a forward; run_block asks for it.
#pragma once

#include "tanren/blocks/saved_tensors.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct OffloadOptions {
  std::vector<std::string> patterns;  // of blocks (names.h)
  at::Device device = at::kCPU;  // whose tensors are moved; of the CPU's a copy is made, for tests
  int64_t min_bytes = 1 << 20;   // smaller ones stay
  std::vector<at::Tensor> held;  // that the step holds in any case: weights, buffers, the batch
};

class OffloadScope {
 public:
  // For this thread's forward.
  explicit OffloadScope(const OffloadOptions& options);
  ~OffloadScope();
  OffloadScope(const OffloadScope&) = delete;
  OffloadScope& operator=(const OffloadScope&) = delete;

  // Bytes copied to host memory so far.
  int64_t copied_bytes() const;

 private:
  friend class OffloadBlock;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  const OffloadScope* outer_;
};

// The operators of this thread are of this block while it lives; without a scope that wants it, nothing.
// Blocks within it are part of it. A block that is recomputed is not offloaded.
class OffloadBlock {
 public:
  explicit OffloadBlock(std::string_view name);
  OffloadBlock(const OffloadBlock&) = delete;
  OffloadBlock& operator=(const OffloadBlock&) = delete;

 private:
  std::optional<SavedTensorScope> scope_;
};

}  // namespace tanren
