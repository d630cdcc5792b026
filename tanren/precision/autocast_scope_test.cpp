#include "tanren/precision/autocast_scope.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include <atomic>

namespace tanren {
namespace {

// Counts calls of aten::_to_copy that touch this thread while it lives.
class CastCounter {
 public:
  CastCounter() {
    count() = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& call)
                                       -> std::unique_ptr<at::ObserverContext> {
          if (std::string(call.name()) == "aten::_to_copy") ++count();
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CastCounter() { at::removeCallback(handle_); }
  static std::atomic<int>& count() {
    static std::atomic<int> value{0};
    return value;
  }

 private:
  at::CallbackHandle handle_;
};

TEST(AutocastScope, restores_the_outer_state_after_an_exception) {
  try {
    const AutocastScope scope(at::kCPU, {.mode = Mode::bf16});
    throw 1;
  } catch (int) {
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(AutocastScope, casts_products_to_the_mode_and_leaves_weight_gradients_in_fp32) {
  const auto weight = at::randn({4, 8}).requires_grad_();
  for (const Mode mode : {Mode::bf16, Mode::fp16}) {
    at::Tensor out;
    {
      const AutocastScope scope(at::kCPU, {.mode = mode});
      out = at::linear(at::randn({2, 8}), weight);
    }
    EXPECT_EQ(out.scalar_type(), dtype_of(mode));
    out.sum().backward();
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  }
}

TEST(AutocastScope, shields_fp32_from_an_outer_autocast) {
  const AutocastScope outer(at::kCPU, {.mode = Mode::bf16});
  const AutocastScope inner(at::kCPU, {.mode = Mode::fp32});
  EXPECT_EQ(at::linear(at::randn({2, 8}), at::randn({4, 8})).scalar_type(), at::kFloat);
}

int casts_over_two_forwards(bool window) {
  const auto weight = at::randn({4, 8}).requires_grad_();
  const auto input = at::randn({2, 8}).to(at::kBFloat16);
  const CastCounter counter;
  std::optional<WindowScope> held;
  if (window) held.emplace(PrecisionPlan{.mode = Mode::bf16});
  for (int i = 0; i < 2; ++i) {
    const AutocastScope scope(at::kCPU, {.mode = Mode::bf16});
    at::linear(input, weight);
  }
  return CastCounter::count();
}

TEST(WindowScope, casts_each_weight_once_over_the_window) {
  EXPECT_EQ(casts_over_two_forwards(/*window=*/false), 2);
  EXPECT_EQ(casts_over_two_forwards(/*window=*/true), 1);
}

TEST(WindowScope, forgets_the_casts_at_its_end_so_that_changed_weights_are_seen) {
  const auto weight = at::ones({1, 1}).requires_grad_();
  const auto input = at::ones({1, 1});
  const auto forward = [&] {
    const AutocastScope scope(at::kCPU, {.mode = Mode::bf16});
    return at::linear(input, weight).item<float>();
  };
  {
    const WindowScope window({.mode = Mode::bf16});
    EXPECT_EQ(forward(), 1.0f);
  }
  {
    const at::NoGradGuard no_grad;
    weight.detach().fill_(3);
  }
  const WindowScope window({.mode = Mode::bf16});
  EXPECT_EQ(forward(), 3.0f);
}

}  // namespace
}  // namespace tanren
