#include "tanren/data/loader.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/data/device_transfer.h"
#include "tanren/data/order.h"
#include "tanren/data/single_thread.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/core/grad_mode.h>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

// The rough cost to the step's thread of waking a worker and taking over its batch: measured 10 µs
// and more, where gathering 32 small samples takes 4.
constexpr double kHandoverSeconds = 20e-6;

// One global batch: `count` samples of an epoch, from position `begin` on.
struct Ticket {
  int64_t epoch = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

}  // namespace

struct Loader::State {
  // A place for one finished batch; ticket n waits in slot n mod slots.size().
  struct Slot {
    bool full = false;
    GlobalBatch batch;  // without `local`, which is on its way to the device
    DeviceTransfer::Sent local;
    std::exception_ptr error;
  };

  State(const Dataset& source, const LoaderOptions& asked, Cursor from)
      : dataset(source), options(asked), transfer(asked.device), start(from), size(source.size()) {
    check();
    per_epoch = batches_in(size);
    rest_of_first = batches_in(size - start.consumed);
    slots.resize(static_cast<size_t>(std::max<int64_t>(options.prefetch, 1)));
    if (options.patience_seconds <= 0) start_workers();
  }

  ~State() {
    for (auto& thread : threads) thread.request_stop();  // all at once, then join one by one
  }

  // The workers continue after the last batch that the caller's thread made.
  void start_workers() {
    next_ticket = next_result;
    for (int64_t i = 0; i < options.workers; ++i) {
      threads.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  void check() const {
    if (options.global_batch < 1 || batches_in(size) < 1) {
      throw DataError(fmt::format(
          "[data] {} no batch of {}; lower batch.global_batch or set data.last = "
          "\"keep\"",
          size == 1 ? "1 sample gives" : counted(size, "sample") + " give", options.global_batch));
    }
    if (start.epoch < 0 || start.consumed < 0 || start.consumed > size) {
      throw DataError(
          fmt::format("[data] cannot resume after {} of {} samples in epoch {}; use the data that "
                      "the run was started with",
                      start.consumed, size, start.epoch));
    }
  }

  int64_t batches_in(int64_t samples) const {
    return (samples + (options.keep_last ? options.global_batch - 1 : 0)) / options.global_batch;
  }

  // Ticket 0 is the first batch after `start`.
  Ticket ticket(int64_t number) const {
    Ticket t{start.epoch, start.consumed + number * options.global_batch, 0};
    if (number >= rest_of_first) {
      number -= rest_of_first;
      t.epoch = start.epoch + 1 + number / per_epoch;
      t.begin = number % per_epoch * options.global_batch;
    }
    t.count = std::min(options.global_batch, size - t.begin);
    return t;
  }

  Slot make(int64_t number) const {
    const at::NoGradGuard no_grad;
    const MustSucceedScope must_succeed;
    const MemoryScope memory(MemoryKind::batches);
    const Ticket t = ticket(number);
    const Order order(size, options.seed, t.epoch, options.shuffle);
    const int64_t from = options.rank * t.count / options.world_size;
    const int64_t to = (options.rank + 1) * t.count / options.world_size;
    std::vector<int64_t> indices;
    indices.reserve(static_cast<size_t>(to - from));
    for (int64_t i = from; i < to; ++i) indices.push_back(order(t.begin + i));
    Collated made_of = collated_for_training(dataset, indices, {options.seed, t.epoch});
    Slot made;
    made.full = true;
    made.local = transfer.send(std::move(made_of.batch));
    made.batch.counts = std::move(made_of.counts);
    made.batch.counts["samples"] = static_cast<double>(t.count);
    made.batch.epoch = t.epoch;
    made.batch.consumed = t.begin + t.count;
    return made;
  }

  void work(const std::stop_token& stop) {
    stay_single_threaded();
    while (true) {
      int64_t number = 0;
      {
        std::unique_lock lock(mutex);
        const bool go = room.wait(lock, stop, [this] {
          return next_ticket < next_result + static_cast<int64_t>(slots.size());
        });
        // A stop takes precedence over room for another batch, so that ending never waits for a
        // batch.
        if (!go || stop.stop_requested()) return;
        number = next_ticket++;
      }
      Slot made;
      try {
        made = make(number);
      } catch (...) {
        made.full = true;
        made.error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      slots[static_cast<size_t>(number) % slots.size()] = std::move(made);
      if (number == next_result) ready.notify_one();
    }
  }

  // Makes the next batch on the caller's thread, and starts the workers once that costs too much.
  GlobalBatch make_here() {
    const auto begin = Clock::now();
    Slot made = make(next_result++);
    cost += std::max(seconds_since(begin) - kHandoverSeconds, 0.0);
    if (options.workers > 0 && cost > options.patience_seconds) start_workers();
    return delivered(std::move(made));
  }

  GlobalBatch delivered(Slot slot) const {
    slot.batch.local = transfer.receive(std::move(slot.local));
    return std::move(slot.batch);
  }

  GlobalBatch take() {
    if (threads.empty()) return make_here();
    Slot taken;
    {
      std::unique_lock lock(mutex);
      Slot& slot = slots[static_cast<size_t>(next_result) % slots.size()];
      ready.wait(lock, [&] { return slot.full; });
      taken = std::exchange(slot, {});
      ++next_result;
    }
    room.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return delivered(std::move(taken));
  }

  const Dataset& dataset;
  const LoaderOptions options;
  const DeviceTransfer transfer;
  const Cursor start;
  const int64_t size;
  int64_t per_epoch = 0;
  int64_t rest_of_first = 0;  // batches from `start` to the end of its epoch

  double cost = 0;  // seconds of make_here beyond kHandoverSeconds a batch

  std::mutex mutex;
  std::condition_variable_any room;
  std::condition_variable ready;
  int64_t next_ticket = 0;  // to be claimed by a worker
  int64_t next_result = 0;  // to be handed out
  std::vector<Slot> slots;
  std::vector<std::jthread> threads;  // last member: joined before the rest goes
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, Cursor start)
    : state_(std::make_unique<State>(dataset, options, start)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

GlobalBatch Loader::next() {
  const auto start = Clock::now();
  GlobalBatch batch = state_->take();
  batch.wait_seconds = seconds_since(start);
  return batch;
}

}  // namespace tanren
