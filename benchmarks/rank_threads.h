// Ranks that are threads of a benchmark and wait between blocks of work, so that several sets of
// ranks can be measured in turn in one run.
#pragma once

#include "tests/support/rank_run.h"

#include <ATen/Parallel.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tanren::bench {

class RankThreads {
 public:
  using Work = std::function<void(int rank, testing::RankRun& run)>;

  RankThreads(int count, const RunConfig& config, const Dataset& data, ThreadGroup::Options link)
      : group_(count, link), open_windows_(std::make_shared<std::atomic<int>>(0)) {
    for (int rank = 0; rank < count; ++rank) {
      threads_.emplace_back([this, rank, config, &data] { serve(rank, config, data); });
    }
    each([](int, testing::RankRun&) {});  // returns when all ranks are built
  }
  ~RankThreads() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Runs `work` on every rank at the same time; returns when all have finished.
  void each(const Work& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    busy_ = threads_.size();
    ++round_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return busy_ == 0; });
  }
  void steps(int count) {
    each([count](int, testing::RankRun& run) {
      for (int i = 0; i < count; ++i) run.step();
    });
  }
  int64_t num_buckets() {
    int64_t buckets = 0;
    each([&](int rank, testing::RankRun& run) {
      if (rank == 0) buckets = run.state.phases.front().reducer->num_buckets();
    });
    return buckets;
  }

 private:
  void serve(int rank, const RunConfig& config, const Dataset& data) {
    const auto communicator = group_.communicator(rank);
    testing::RankRun run(config, data, *communicator, {}, open_windows_);
    at::set_num_threads(1);  // for the operators of this thread
    for (int64_t seen = 0;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || round_ > seen; });
      if (ends_) return;
      seen = round_;
      const Work& work = *work_;
      lock.unlock();
      work(rank, run);
      lock.lock();
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  ThreadGroup group_;
  std::shared_ptr<std::atomic<int>> open_windows_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, up to ends_.
  const Work* work_ = nullptr;
  size_t busy_ = 0;
  int64_t round_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tanren::bench
