#include "tanren/memory/attempt.h"

#include "tanren/blocks/block.h"
#include "tanren/memory/cpu_allocator.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace tanren {
namespace {

class AttemptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::ones({4}) + 1;  // torch's one-time allocations are done now
    install_cpu_allocator();
    trim_cpu_memory();
  }
  void TearDown() override {
    set_cpu_memory_limit(0);
    fail_cpu_allocation(INT64_MAX);
    uninstall_cpu_allocator();
  }
};

TEST_F(AttemptTest, passes_other_errors_through) {
  EXPECT_THROW(attempt([] { throw std::runtime_error("shape"); }), std::runtime_error);
  EXPECT_THROW(attempt([] { at::ones({2}) + at::ones({3}); }), c10::Error);
}

TEST_F(AttemptTest, is_silent_where_nothing_failed) {
  EXPECT_FALSE(attempt([] { at::ones({2}); }));
}

TEST_F(AttemptTest, knows_the_words_of_other_libraries) {
  EXPECT_TRUE(attempt([] { throw std::bad_alloc(); }));
  EXPECT_TRUE(attempt([] { throw std::runtime_error("CUDA error: out of memory"); }));
  EXPECT_TRUE(attempt([] { throw std::runtime_error("could not create a memory object"); }));
  EXPECT_TRUE(says_out_of_memory("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x"));
  EXPECT_FALSE(says_out_of_memory("CUBLAS_STATUS_INVALID_VALUE"));
}

TEST_F(AttemptTest, names_operator_block_and_bytes_of_a_failed_forward) {
  const at::Tensor weight = at::ones({64, 32});
  const at::Tensor input = at::ones({8, 32});
  const BlockTrailScope trail;
  const auto shortage = attempt([&] {
    run_block("head", [&] {
      fail_cpu_allocation(0);
      return at::linear(input, weight);
    });
  });
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->block, "head");
  EXPECT_FALSE(shortage->in_backward);
  EXPECT_GT(shortage->bytes, 0);
  EXPECT_NE(shortage->message.find("no room for a tensor of"), std::string::npos);
  EXPECT_TRUE(shortage->operation == "linear" || shortage->operation == "mm" ||
              shortage->operation == "matmul")
      << shortage->operation;
}

TEST_F(AttemptTest, names_the_block_of_a_failed_backward) {
  const at::Tensor x = at::ones({64, 64}).requires_grad_(true);
  const BlockTrailScope trail;
  const auto shortage = attempt([&] {
    at::Tensor y = run_block("layers.0", [&] { return x.exp(); });
    y = run_block("layers.1", [&] { return y.sin(); });
    const at::Tensor loss = y.sum();
    fail_cpu_allocation(1);  // after sum's seed
    torch::autograd::backward({loss}, {});
  });
  ASSERT_TRUE(shortage);
  EXPECT_TRUE(shortage->in_backward);
  EXPECT_EQ(shortage->block, "layers.1");
}

TEST_F(AttemptTest, a_failure_leaves_nothing_alive) {
  const at::Tensor x = at::ones({256, 256}).requires_grad_(true);
  x.mutable_grad() = at::zeros_like(x);
  const auto work = [&] { torch::autograd::backward({((x * 2).exp() + x).log().sum()}, {}); };
  work();
  const int64_t before = cpu_memory_stats().live_bytes;
  int failures = 0;
  for (int64_t index = 0;; ++index) {
    fail_cpu_allocation(index);
    const bool failed = attempt(work).has_value();
    EXPECT_EQ(cpu_memory_stats().live_bytes, before) << "allocation " << index;
    if (!failed) break;
    ++failures;
  }
  EXPECT_GT(failures, 6);
}

}  // namespace
}  // namespace tanren
