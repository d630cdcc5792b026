#include "tanren/data/loader.h"

#include "tanren/base/error.h"
#include "tanren/data/order.h"

#include <ATen/core/grad_mode.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace tanren {

namespace {

// The samples of one global batch: position in the epoch and how many.
struct Ticket {
  int64_t epoch = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

}  // namespace

struct Loader::State {
  struct Result {
    GlobalBatch batch;
    std::exception_ptr error;
  };

  State(const Dataset& dataset, const LoaderOptions& options, Cursor start)
      : dataset(dataset), options(options) {
    const int64_t size = dataset.size();
    per_epoch = options.keep_last ? (size + options.global_batch - 1) / options.global_batch
                                  : size / options.global_batch;
    if (options.global_batch < 1 || per_epoch < 1) {
      throw DataError("[data] " + std::to_string(size) + " samples give no batch of " +
                      std::to_string(options.global_batch) + "; lower batch.global_batch or keep the last");
    }
    const int64_t used = (start.consumed + options.global_batch - 1) / options.global_batch;
    first = start.epoch * per_epoch + std::min(used, per_epoch);
    next_ticket = next_result = first;
    for (int64_t i = 0; i < options.workers; ++i) {
      threads.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  Ticket ticket(int64_t number) const {
    const int64_t begin = number % per_epoch * options.global_batch;
    return {number / per_epoch, begin, std::min(options.global_batch, dataset.size() - begin)};
  }

  GlobalBatch make(int64_t number) const {
    const Ticket t = ticket(number);
    const Order order(dataset.size(), options.seed, t.epoch, options.shuffle);
    const int64_t from = options.rank * t.count / options.world_size;
    const int64_t to = (options.rank + 1) * t.count / options.world_size;
    std::vector<int64_t> indices;
    indices.reserve(static_cast<size_t>(to - from));
    for (int64_t i = from; i < to; ++i) indices.push_back(order(t.begin + i));
    Collated collated = dataset.collate(indices);
    GlobalBatch batch;
    batch.local = std::move(collated.batch);
    batch.counts = std::move(collated.counts);
    batch.epoch = t.epoch;
    batch.consumed = t.begin + t.count;
    return batch;
  }

  void work(const std::stop_token& stop) {
    const at::NoGradGuard no_grad;
    while (true) {
      int64_t number = 0;
      {
        std::unique_lock lock(mutex);
        const bool go = room.wait(lock, stop, [this] {
          return next_ticket < next_result + std::max<int64_t>(options.prefetch, 1);
        });
        if (!go) return;
        number = next_ticket++;
      }
      Result result;
      try {
        result.batch = make(number);
      } catch (...) {
        result.error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      results.emplace(number, std::move(result));
      ready.notify_one();
    }
  }

  GlobalBatch take() {
    if (threads.empty()) return make(next_result++);
    Result result;
    {
      std::unique_lock lock(mutex);
      ready.wait(lock, [this] { return results.count(next_result) > 0; });
      auto node = results.extract(next_result++);
      result = std::move(node.mapped());
      room.notify_one();
    }
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.batch);
  }

  const Dataset& dataset;
  const LoaderOptions options;
  int64_t per_epoch = 0;
  int64_t first = 0;

  std::mutex mutex;
  std::condition_variable_any room;
  std::condition_variable ready;
  int64_t next_ticket = 0;  // to be claimed by a worker
  int64_t next_result = 0;  // to be handed out
  std::map<int64_t, Result> results;
  std::vector<std::jthread> threads;  // last member: joined before the rest goes
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, Cursor start)
    : state_(std::make_unique<State>(dataset, options, start)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

GlobalBatch Loader::next() {
  const auto start = std::chrono::steady_clock::now();
  GlobalBatch batch = state_->take();
  batch.wait_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return batch;
}

}  // namespace tanren
