#include "tanren/memory/cpu_allocator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tanren {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kCaches = false;
#else
constexpr bool kCaches = true;
#endif

int64_t resident() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, pages = 0;
  file >> total >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

at::Tensor bytes(int64_t count) { return at::empty({count}, at::kByte); }

class CpuAllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bytes(1);  // torch's one-time allocations are done now
    install_cpu_allocator();
    trim_cpu_memory();
    before_ = cpu_memory_stats();
  }
  void TearDown() override {
    install_cpu_allocator();
    trim_cpu_memory();
    uninstall_cpu_allocator();
  }
  int64_t live() const { return cpu_memory_stats().live_bytes - before_.live_bytes; }

  MemoryStats before_;
};

TEST_F(CpuAllocatorTest, an_absurd_size_is_out_of_memory_and_leaves_no_trace) {
  auto* allocator = c10::GetAllocator(c10::kCPU);
  EXPECT_THROW(allocator->allocate(SIZE_MAX - 10), c10::OutOfMemoryError);
  if (kCaches) {  // the sanitizer's malloc aborts instead of returning null
    EXPECT_THROW(allocator->allocate(size_t{1} << 60), c10::OutOfMemoryError);
  }
  EXPECT_EQ(live(), 0);
}

TEST_F(CpuAllocatorTest, counts_live_bytes_exactly) {
  std::optional<at::Tensor> small = bytes(3), large = bytes(kMiB + 5);
  EXPECT_EQ(live(), 3 + kMiB + 5);
  const at::Tensor empty = bytes(0);
  EXPECT_EQ(live(), 3 + kMiB + 5);
  const at::Tensor view = large->narrow(0, 0, 10);
  large.reset();
  EXPECT_EQ(live(), 3 + kMiB + 5) << "a view keeps the storage";
  small.reset();
  EXPECT_EQ(live(), kMiB + 5);
  EXPECT_GE(cpu_memory_stats().peak_bytes, before_.live_bytes + 3 + kMiB + 5);
}

TEST_F(CpuAllocatorTest, a_freed_block_serves_the_next_tensor_of_its_size) {
  if (!kCaches) GTEST_SKIP() << "stands aside for the address sanitizer";
  const void* first = bytes(5 * kMiB).data_ptr();
  EXPECT_GE(cpu_memory_stats().cached_bytes, 4 * kMiB);
  const at::Tensor next = bytes(5 * kMiB);
  EXPECT_EQ(next.data_ptr(), first);
}

TEST_F(CpuAllocatorTest, every_block_is_aligned_for_vectors) {
  for (const int64_t size : {1, 7, 64, 1000, 32 << 10, (32 << 10) - 1, 3 << 20, (40 << 20) + 3}) {
    const at::Tensor tensor = bytes(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u) << size;
    EXPECT_EQ(tensor.fill_(1).sum().item<int64_t>(), size);
  }
}

TEST_F(CpuAllocatorTest, the_raw_interface_works) {
  auto* allocator = c10::GetAllocator(c10::kCPU);
  ASSERT_NE(allocator->raw_deleter(), nullptr);
  for (const size_t size : {size_t{100}, size_t{3} << 20}) {
    void* data = allocator->raw_allocate(size);
    std::memset(data, 1, size);
    EXPECT_EQ(live(), static_cast<int64_t>(size));
    allocator->raw_deallocate(data);
  }
  allocator->raw_deallocate(allocator->raw_allocate(0));
  EXPECT_EQ(live(), 0);
}

TEST_F(CpuAllocatorTest, tensors_from_before_and_after_free_where_they_came_from) {
  uninstall_cpu_allocator();
  EXPECT_FALSE(cpu_allocator_installed());
  std::optional<at::Tensor> torchs = at::ones({kMiB});
  install_cpu_allocator();
  EXPECT_EQ(live(), 0);
  std::optional<at::Tensor> ours = at::ones({kMiB});
  EXPECT_EQ(live(), 4 * kMiB);
  torchs.reset();
  uninstall_cpu_allocator();
  EXPECT_EQ(ours->sum().item<float>(), kMiB);
  ours.reset();
  EXPECT_EQ(live(), 0);
}

TEST_F(CpuAllocatorTest, without_cache_it_counts_and_holds_nothing) {
  install_cpu_allocator({.cache = false});
  {
    const at::Tensor tensor = bytes(kMiB);
    EXPECT_EQ(live(), kMiB);
  }
  EXPECT_EQ(cpu_memory_stats().cached_bytes, 0);
}

TEST_F(CpuAllocatorTest, caches_nothing_under_the_address_sanitizer) {
  bytes(5 * kMiB);
  EXPECT_EQ(cpu_memory_stats().cached_bytes > 0, kCaches);
}

TEST_F(CpuAllocatorTest, blocks_that_outlive_the_uninstall_are_whole_and_freed_by_any_thread) {
  std::vector<at::Tensor> kept;
  for (const int64_t size : {int64_t{0}, int64_t{100}, 3 * kMiB, 40 * kMiB}) {
    kept.push_back(bytes(size).fill_(7));
  }
  uninstall_cpu_allocator();
  trim_cpu_memory();                                       // not what is in use
  for (int i = 0; i < 10; ++i) bytes(10 * kMiB).fill_(1);  // torch's own
  for (const auto& tensor : kept) {
    EXPECT_EQ(tensor.sum().item<int64_t>(), 7 * tensor.numel());
  }
  std::thread([&] { kept.clear(); }).join();
  EXPECT_EQ(live(), 0);
}

TEST_F(CpuAllocatorTest, blocks_without_bytes_are_null_and_free) {
  auto* allocator = c10::GetAllocator(c10::kCPU);
  auto one = allocator->allocate(0), two = allocator->allocate(0);
  EXPECT_EQ(one.get(), nullptr);
  one.clear();
  two.clear();
  at::Tensor tensor = bytes(0);
  tensor.resize_({3 * kMiB}).fill_(1);
  EXPECT_EQ(live(), 3 * kMiB);
  tensor.resize_({0});
  tensor.reset();
  EXPECT_EQ(live(), 0);
}

TEST_F(CpuAllocatorTest, trimming_brings_resident_memory_back) {
  if (!kCaches) GTEST_SKIP() << "stands aside for the address sanitizer";
  const int64_t start = resident();
  {
    std::vector<at::Tensor> many;
    many.reserve(50);
    for (int i = 0; i < 50; ++i) many.push_back(at::ones({kMiB}));
  }
  EXPECT_GE(resident(), start + 150 * kMiB);
  EXPECT_GE(trim_cpu_memory(), 150 * kMiB);
  EXPECT_LE(resident(), start + 16 * kMiB);
  EXPECT_LT(cpu_memory_stats().cached_bytes, 4 * kMiB);
}

TEST_F(CpuAllocatorTest, threads_hammer_it) {
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::vector<at::Tensor> exchanged;  // freed by other threads than the ones that made them
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<at::Tensor> mine;
    for (int i = 0; i < 3000; ++i) {
      const int64_t size = 1 + static_cast<int64_t>(random() % (1u << (4 + random() % 18)));
      at::Tensor tensor = bytes(size);
      static_cast<unsigned char*>(tensor.data_ptr())[size - 1] = 1;
      mine.push_back(std::move(tensor));
      if (mine.size() > 20) {
        const std::lock_guard lock(mutex);
        exchanged.push_back(std::move(mine[random() % mine.size()]));
        std::swap(mine.back(), mine[random() % mine.size()]);
        mine.pop_back();
        if (exchanged.size() > 50) exchanged.erase(exchanged.begin(), exchanged.begin() + 30);
      }
      if (i % 500 == 0) trim_cpu_memory();
      std::erase_if(mine, [](const at::Tensor& each) { return !each.defined(); });
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
  exchanged.clear();
  EXPECT_EQ(live(), 0);
}

TEST_F(CpuAllocatorTest, a_forked_child_allocates_and_frees) {
  const at::Tensor before = at::ones({kMiB});
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) bytes(kMiB);  // holds the lock for moments at most
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool fine = bytes(2 * kMiB).defined() && before.data_ptr<float>()[5] == 1;
      ::_exit(fine ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  done = true;
  other.join();
}

TEST(CpuAllocatorSanitizer, sees_a_use_after_free_through_it) {
  if (kCaches) GTEST_SKIP() << "built without the address sanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        install_cpu_allocator();
        at::Tensor tensor = bytes(5 * kMiB);
        const volatile auto* data = static_cast<const unsigned char*>(tensor.data_ptr());
        tensor.reset();
        ::_exit(data[kMiB] == 7 ? 1 : 0);
      },
      "heap-use-after-free");
}

TEST(CpuAllocatorLimit, running_out_empties_the_cache_first) {
  if (!kCaches) GTEST_SKIP() << "the address sanitizer needs the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        rlimit limit{};  // the arena takes a quarter of it; what it refuses, malloc gets
        limit.rlim_cur = limit.rlim_max = size_t{3} << 30;
        ::setrlimit(RLIMIT_AS, &limit);
        install_cpu_allocator();
        std::vector<at::Tensor> kept;
        bool threw = false;
        try {
          for (;;) kept.push_back(bytes(100 * kMiB));
        } catch (const c10::OutOfMemoryError&) {
          threw = true;
        }
        kept.clear();
        const bool works = bytes(100 * kMiB).defined();
        ::_exit(threw && works ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(CpuAllocatorAtExit, static_tensors_are_freed_after_main) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static at::Tensor kept;
        install_cpu_allocator();
        kept = at::ones({kMiB});
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(CpuAllocatorNumbers, results_are_bitwise_those_of_torchs_allocator) {
  const auto train = [] {
    at::manual_seed(3);
    at::Tensor weight = (at::randn({300, 300}) * 0.05).requires_grad_();
    for (int i = 0; i < 5; ++i) {
      const at::Tensor input = at::randn({200, 300});
      at::matmul(at::tanh(at::matmul(input, weight)), weight).softmax(1).pow(2).sum().backward();
      const at::NoGradGuard no_grad;
      weight.sub_(weight.grad(), 0.1);
      weight.mutable_grad().reset();
    }
    return weight.detach().clone();
  };
  const at::Tensor plain = train();
  install_cpu_allocator();
  const at::Tensor cached = train();
  uninstall_cpu_allocator();
  EXPECT_TRUE(at::equal(plain, cached));
}

class CpuMemoryLimit : public CpuAllocatorTest {
 protected:
  void TearDown() override {
    set_cpu_memory_limit(0);
    fail_cpu_allocation(INT64_MAX);
    CpuAllocatorTest::TearDown();
  }
};

TEST_F(CpuMemoryLimit, refuses_what_does_not_fit_and_changes_nothing) {
  const at::Tensor held = bytes(8 * kMiB);
  const int64_t charged = cpu_memory_charged(), live_before = live();
  set_cpu_memory_limit(charged + 16 * kMiB);
  EXPECT_THROW(bytes(64 * kMiB), c10::OutOfMemoryError);
  EXPECT_EQ(live(), live_before);
  EXPECT_LE(cpu_memory_charged(), cpu_memory_limit());
  const at::Tensor fits = bytes(8 * kMiB);  // and the allocator still works
  EXPECT_THROW(bytes(16 * kMiB), c10::OutOfMemoryError);
}

TEST_F(CpuMemoryLimit, bounds_small_tensors_too) {
  set_cpu_memory_limit(cpu_memory_charged() + 4096);
  std::vector<at::Tensor> all;
  EXPECT_THROW(for (int i = 0; i < 100; ++i) all.push_back(bytes(1024)), c10::OutOfMemoryError);
  EXPECT_EQ(all.size(), 4);
}

TEST_F(CpuMemoryLimit, gives_up_the_cache_before_it_refuses) {
  if (!kCaches) GTEST_SKIP() << "stands aside for the address sanitizer";
  { const at::Tensor peak = bytes(64 * kMiB); }
  set_cpu_memory_limit(cpu_memory_charged() + 4 * kMiB);
  const at::Tensor larger = bytes(66 * kMiB);
  EXPECT_LE(cpu_memory_charged(), cpu_memory_limit());
  EXPECT_LT(cpu_memory_stats().cached_bytes, 8 * kMiB);
}

TEST_F(CpuMemoryLimit, keeps_its_reserve_for_what_is_essential) {
  set_cpu_memory_limit(cpu_memory_charged() + 32 * kMiB, 16 * kMiB);
  EXPECT_THROW(bytes(24 * kMiB), c10::OutOfMemoryError);
  const MustSucceedScope must_succeed;
  EXPECT_EQ(bytes(24 * kMiB).numel(), 24 * kMiB);
}

TEST_F(CpuMemoryLimit, no_limit_is_none) {
  set_cpu_memory_limit(1);
  EXPECT_THROW(bytes(100), c10::OutOfMemoryError);
  set_cpu_memory_limit(0);
  EXPECT_EQ(cpu_memory_limit(), 0);
  EXPECT_EQ(bytes(100).numel(), 100);
}

TEST_F(CpuMemoryLimit, a_chosen_allocation_fails_once) {
  fail_cpu_allocation(2);
  const at::Tensor first = bytes(10), second = bytes(10);
  EXPECT_THROW(bytes(10), c10::OutOfMemoryError);
  EXPECT_LT(cpu_allocations_until_failure(), 0);
  EXPECT_EQ(bytes(10).numel(), 10);
  fail_cpu_allocation(0);
  const MustSucceedScope must_succeed;  // is tried again
  EXPECT_EQ(bytes(10).numel(), 10);
}

TEST_F(CpuMemoryLimit, counts_by_kind_until_the_tensor_dies) {
  const auto before = cpu_memory_by_kind();
  const auto grown = [&](MemoryKind kind) {
    return cpu_memory_by_kind()[static_cast<size_t>(kind)] - before[static_cast<size_t>(kind)];
  };
  at::Tensor weights, moments;
  {
    const MemoryScope scope(MemoryKind::weights);
    weights = bytes(kMiB);
    const MemoryScope inner(MemoryKind::optimizer);
    moments = bytes(100);
  }
  EXPECT_EQ(grown(MemoryKind::weights), kMiB);
  EXPECT_EQ(grown(MemoryKind::optimizer), 100);
  {
    const MemoryScope scope(MemoryKind::gradients);
    weights.reset();
  }
  EXPECT_EQ(grown(MemoryKind::weights), 0);
  int64_t sum = 0;
  for (const int64_t bytes_of_kind : cpu_memory_by_kind()) sum += bytes_of_kind;
  EXPECT_EQ(sum, cpu_memory_stats().live_bytes);
}

TEST_F(CpuMemoryLimit, the_peak_begins_anew_when_asked) {
  { const at::Tensor peak = bytes(32 * kMiB); }
  const int64_t whole = cpu_memory_stats().peak_bytes;
  restart_cpu_memory_peak();
  EXPECT_EQ(cpu_memory_stats().recent_peak_bytes, cpu_memory_stats().live_bytes);
  { const at::Tensor more = bytes(2 * kMiB); }
  EXPECT_EQ(cpu_memory_stats().recent_peak_bytes, cpu_memory_stats().live_bytes + 2 * kMiB);
  EXPECT_EQ(cpu_memory_stats().peak_bytes, whole);
}

}  // namespace
}  // namespace tanren
