#include "tanren/memory/fault.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/memory/attempt.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/memory/recovery.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <stdexcept>

namespace tanren {
namespace {

using testing::error_of;

constexpr const char* kCublas =
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`";

TEST(Fault, other_errors_are_none) {
  EXPECT_EQ(fault_of("The size of tensor a (3) must match the size of tensor b (4)"), Fault::none);
  EXPECT_EQ(fault_of(""), Fault::none);
  EXPECT_EQ(explanation(Fault::none, {}, 8), "");
}

TEST(Fault, libraries_and_kernels_are_known_by_their_words) {
  for (const char* message :
       {kCublas, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "cuFFT error: CUFFT_ALLOC_FAILED"}) {
    EXPECT_EQ(fault_of(message), Fault::memory) << message;
  }
  for (const char* message : {"CUDA error: unspecified launch failure",
                              "CUDA error: an illegal memory access was encountered",
                              "CUDA error: too many resources requested for launch",
                              "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"}) {
    EXPECT_EQ(fault_of(message), Fault::launch) << message;
  }
  for (const char* message : {"CUDA error: device-side assert triggered",
                              "index out of range in self", "Target 7 is out of bounds."}) {
    EXPECT_EQ(fault_of(message), Fault::index) << message;
  }
}

TEST(Fault, after_an_assert_what_a_library_says_is_no_news) {
  EXPECT_EQ(fault_of(std::string(kCublas) + ": device-side assert triggered"), Fault::index);
}

TEST(Fault, what_a_smaller_microbatch_may_cure_is_tried_and_a_dead_device_is_not) {
  EXPECT_TRUE(says_out_of_memory(kCublas));
  EXPECT_TRUE(says_out_of_memory("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"));
  EXPECT_TRUE(attempt([] { throw std::runtime_error(kCublas); }));
  EXPECT_FALSE(says_out_of_memory("CUDA error: unspecified launch failure"));
  EXPECT_FALSE(says_out_of_memory("CUDA error: device-side assert triggered"));
}

TEST(Fault, the_explanation_says_what_was_held_and_how_to_confirm) {
  MemoryState state;
  state.live = int64_t{3} << 30;
  state.peak = int64_t{5} << 30;
  state.limit = int64_t{6} << 30;
  state.owners = {{"weights", int64_t{2} << 30}};
  const std::string text = explanation(Fault::memory, state, 16);
  for (const char* part :
       {"often out of memory in disguise", "tensors held 3.0 GiB, at most 5.0 GiB, of 6.0 GiB",
        "weights 2.0 GiB", "batch.microbatch = 8", "memory.limit", "CUDA_LAUNCH_BLOCKING=1"}) {
    TANREN_EXPECT_CONTAINS(text, part);
  }
  TANREN_EXPECT_CONTAINS(explanation(Fault::launch, state, 1), "shorter samples");
  EXPECT_EQ(explanation(Fault::launch, {}, 4).find("tensors held"), std::string::npos);
}

TEST(Fault, recovery_explains_a_library_s_words_when_it_gives_up) {
  Recovery recovery(MemoryPlan{.recovery = RecoveryMode::split}, at::kCPU);
  Shortage shortage;
  shortage.message = kCublas;
  recovery.failed(1, shortage);
  const std::string text = error_of<MemoryError>([&] { recovery.failed(1, shortage); });
  for (const char* part : {"one sample does not fit", kCublas, "out of memory in disguise"}) {
    TANREN_EXPECT_CONTAINS(text, part);
  }
  shortage.message = "CUDA out of memory";
  const std::string plain = error_of<MemoryError>([&] { recovery.failed(1, shortage); });
  EXPECT_EQ(plain.find("in disguise"), std::string::npos) << plain;
}

// Whatever the split, no microstep has fewer samples than the model takes.
TEST(Recovery, splits_no_further_than_the_model_takes) {
  Recovery recovery(MemoryPlan{.recovery = RecoveryMode::split}, at::kCPU);
  EXPECT_EQ(recovery.part(8, 17), 8);
  EXPECT_EQ(recovery.part(8, 1), 1) << "what the plan leaves stays";
  recovery.failed(8, {}, 3);
  EXPECT_EQ(recovery.part(8, 8), 4) << "not 3 and 5";
  EXPECT_EQ(recovery.part(8, 7), 4);
  EXPECT_EQ(recovery.part(8, 5), 5) << "3 + 2";
  EXPECT_EQ(recovery.part(4, 8), 4) << "3, 4 and 1 would end with too few";
  EXPECT_EQ(recovery.part(20, 20), 4) << "even, and not 3 six times and 2";
  recovery.fitted(3);
  EXPECT_EQ(recovery.part(8, 8), 4) << "6 + 2";
  recovery.failed(5, {}, 3);
  const std::string text = error_of<MemoryError>([&] { recovery.failed(5, {}, 3); });
  TANREN_EXPECT_CONTAINS(text, "with 5 samples");
  TANREN_EXPECT_CONTAINS(text, "and the model takes at least 3 at once");
}

TEST(Recovery, of_the_same_split_keeps_what_the_plan_leaves) {
  Recovery recovery(MemoryPlan{.recovery = RecoveryMode::same_split}, at::kCPU);
  recovery.failed(4, {}, 2);
  EXPECT_EQ(recovery.part(4, 9), 4);
  EXPECT_EQ(recovery.part(4, 5), 4);
  EXPECT_EQ(recovery.part(4, 1), 1);
}

// Holds for each share whose planned microbatches the model takes, whether or not sizes grow again
// after a failure.
TEST(Recovery, splits_a_share_into_numbers_that_the_model_takes) {
  for (const int64_t multiple : {1, 2, 4}) {
    for (int64_t least = 2 * multiple; least <= 8; least += multiple) {
      for (int64_t planned = least; planned < 24; planned += multiple) {
        for (int64_t share = least; share < 60; share += multiple) {
          if (share % planned != 0 && share % planned < least) continue;
          for (const bool grows : {false, true}) {
            Recovery recovery(MemoryPlan{.recovery = RecoveryMode::split}, at::kCPU);
            recovery.failed(planned, {}, least);
            for (int64_t left = share; left > 0;) {
              const int64_t part = recovery.part(planned, left);
              ASSERT_TRUE(part >= least && part <= planned && part % multiple == 0)
                  << part << " of " << left << " of " << share << ", planned " << planned
                  << ", least " << least << " in multiples of " << multiple;
              left -= part;
              if (grows) recovery.fitted(part);
            }
          }
        }
      }
    }
  }
}

TEST(Fault, the_state_is_the_gauge_s) {
  install_cpu_allocator();
  const at::Tensor held = at::ones({1024, 256});
  MemoryState state;
  state.update(MemoryGauge(at::kCPU));
  EXPECT_GE(state.live, 1 << 20);
  EXPECT_GE(state.peak, state.live);
  EXPECT_FALSE(state.owners.empty());
  uninstall_cpu_allocator();
}

}  // namespace
}  // namespace tanren
