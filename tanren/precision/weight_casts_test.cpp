#include "tanren/precision/weight_casts.h"

#include "tanren/base/operator_listener.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/precision/autocast_scope.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

namespace tanren {
namespace {

// Bytes made of each kind by `work`, within a scope of activations.
template <class F>
std::map<MemoryKind, int64_t> made_by(F&& work) {
  const TraceScope tracing;
  {
    const MemoryScope memory(MemoryKind::activations);
    work();
  }
  std::map<MemoryKind, int64_t> bytes;
  for (const auto& event : tracing.trace()) {
    if (event.bytes > 0) bytes[event.kind] += event.bytes;
  }
  return bytes;
}

// Bytes of a 64 × 64 tensor in 16 bits.
constexpr int64_t kCast = 64 * 64 * 2;

TEST(WeightCasts, are_a_kind_of_their_own_made_once_a_window) {
  const at::Tensor weight = at::randn({64, 64}).requires_grad_();
  const at::Tensor input = at::randn({64, 64});
  for (const Mode mode : {Mode::bf16, Mode::fp16}) {
    const WindowScope window({.mode = mode});
    const auto forward = [&] {
      const AutocastScope autocast(at::kCPU, {.mode = mode});
      at::linear(input, weight);
    };
    const auto first = made_by(forward), second = made_by(forward);
    EXPECT_EQ(first.at(MemoryKind::casts), kCast);
    EXPECT_GE(first.at(MemoryKind::activations), 2 * kCast);  // the input's cast, and the product
    EXPECT_EQ(second.count(MemoryKind::casts), 0U);
    EXPECT_EQ(second.at(MemoryKind::activations), first.at(MemoryKind::activations));
  }
}

TEST(WeightCasts, of_frozen_weights_which_autocast_does_not_keep_are_not_of_that_kind) {
  const at::Tensor frozen = at::randn({64, 64});
  const auto bytes = made_by([&] {
    const AutocastScope autocast(at::kCPU, {.mode = Mode::bf16});
    at::linear(at::randn({64, 64}), frozen);
  });
  EXPECT_EQ(bytes.count(MemoryKind::casts), 0U);
}

// Records the dtypes of the linears that a forward calls.
struct DtypeListener final : OperatorListener {
  Answer linear(const at::Tensor&, const at::Tensor& weight, const Bias&) override {
    heard.push_back(weight.scalar_type());
    return {};
  }
  std::vector<at::ScalarType> heard;
};

TEST(WeightCasts, are_marked_beside_a_listener_which_hears_before_the_cast) {
  const at::Tensor weight = at::randn({64, 64}).requires_grad_();
  const auto listener = std::make_shared<DtypeListener>();
  const auto bytes = made_by([&] {
    const OperatorListenerScope scope(listener);
    const AutocastScope autocast(at::kCPU, {.mode = Mode::bf16});
    at::linear(at::randn({64, 64}), weight);
  });
  EXPECT_EQ(bytes.at(MemoryKind::casts), kCast);
  // The caller's weight first, then autocast's copy of it.
  EXPECT_EQ(listener->heard, (std::vector<at::ScalarType>{at::kFloat, at::kBFloat16}));
}

TEST(WeightCasts, leave_the_threads_state_as_it_was) {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  { const AutocastScope autocast(at::kCPU, {.mode = Mode::bf16}); }
  EXPECT_EQ(c10::impl::tls_local_dispatch_key_set().included_, keys.included_);
  const at::Tensor weight = at::randn({64, 64}).requires_grad_();
  EXPECT_EQ(made_by([&] { weight.to(at::kBFloat16); }).count(MemoryKind::casts), 0U);
}

}  // namespace
}  // namespace tanren
