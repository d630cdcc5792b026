// Offload: the tensors that chosen blocks save for backward are in host memory until backward
// reaches the block. Invariant: gradients are bitwise those of keeping everything, and changing
// such a tensor in place is an error as usual. Copies run on their own stream, from and to pinned
// memory; when backward reaches a block, the tensors of the block before it begin to come back.
// Parameters, their casts, OffloadOptions::held, small tensors, and small parts of large tensors
// stay on the device. The step opens an OffloadScope around a forward; run_block uses it.
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
  at::Device device = at::kCPU;  // its tensors are moved; tensors of the CPU are copied, for tests
  int64_t min_bytes = 1 << 20;   // smaller tensors stay
  std::vector<at::Tensor> held;  // the step keeps these anyway: weights, buffers, the batch
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

// While it lives, this thread's operators belong to this block. Does nothing unless a scope's
// pattern matches `name`. Inner blocks are part of the block. A block that is recomputed is not
// offloaded.
class OffloadBlock {
 public:
  explicit OffloadBlock(std::string_view name);
  OffloadBlock(const OffloadBlock&) = delete;
  OffloadBlock& operator=(const OffloadBlock&) = delete;

 private:
  std::optional<SavedTensorScope> scope_;
};

}  // namespace tanren
