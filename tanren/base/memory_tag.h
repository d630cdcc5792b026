// MemoryTag: what this thread's new tensors are for. Scopes mark them with a kind and a block, or
// mark an allocation as one that must succeed. The allocator (memory/) reads the tag when a tensor
// is made and keeps it for the tensor's life; other allocators ignore it. Each thread has its own
// tag. A scope costs two stores. The allocator counts its refusals in the tag: where an exception
// loses its type on the way up, the count still shows that memory ran out.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tanren {

enum class MemoryKind : uint8_t {
  other,
  weights,      // parameters and buffers
  gradients,    // gradients and the buckets that they are views of
  optimizer,    // the optimizer's state
  averages,     // averaged weights
  casts,        // autocast's copies of weights, kept for a window
  key_values,   // keys and values of the tokens that a generation has read
  batches,      // collated, before the step or in it
  activations,  // made by forward and kept for backward
  temporaries,  // of one operator, or of the update
  workspaces,   // of a device's libraries; only memory predictions use this kind
};
constexpr size_t kNumMemoryKinds = 11;

constexpr std::array<std::string_view, kNumMemoryKinds> kMemoryKindNames = {
    "other",      "weights", "gradients",   "optimizer",   "averages",  "casts",
    "key_values", "batches", "activations", "temporaries", "workspaces"};

constexpr std::string_view name(MemoryKind kind) {
  return kMemoryKindNames[static_cast<size_t>(kind)];
}

struct MemoryTag {
  MemoryKind kind = MemoryKind::other;
  uint16_t block = 0;         // 0: outside of any block
  bool must_succeed = false;  // may use the budget's reserve, and is tried twice
  uint32_t refusals = 0;      // how often the allocator has refused memory to this thread
};

inline MemoryTag& memory_tag() {
  thread_local MemoryTag tag;
  return tag;
}

// While it lives, new tensors of this thread are of `kind`.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind) : before_(memory_tag().kind) { memory_tag().kind = kind; }
  ~MemoryScope() { memory_tag().kind = before_; }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryKind before_;
};

// Marks code that must not be interrupted half-way (an optimizer's step, a checkpoint): its small
// allocations come from a reserve that other code does not get.
class MustSucceedScope {
 public:
  MustSucceedScope() : before_(memory_tag().must_succeed) { memory_tag().must_succeed = true; }
  ~MustSucceedScope() { memory_tag().must_succeed = before_; }
  MustSucceedScope(const MustSucceedScope&) = delete;
  MustSucceedScope& operator=(const MustSucceedScope&) = delete;

 private:
  bool before_;
};

// Inside a must-succeed scope, marks code that may fail and be retried (attempt.h).
class MayRunOutScope {
 public:
  MayRunOutScope() : before_(memory_tag().must_succeed) { memory_tag().must_succeed = false; }
  ~MayRunOutScope() { memory_tag().must_succeed = before_; }
  MayRunOutScope(const MayRunOutScope&) = delete;
  MayRunOutScope& operator=(const MayRunOutScope&) = delete;

 private:
  bool before_;
};

}  // namespace tanren
