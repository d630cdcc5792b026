#include "tanren/data/loader.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/data/order.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

namespace tanren {
namespace {

// `size` numbered samples; collate does whatever the test says first.
class ProbeDataset : public Dataset {
 public:
  explicit ProbeDataset(int64_t size,
                        std::function<void(const std::vector<int64_t>&)> on_collate = {})
      : data_(fields(size), {}, "data.train"), on_collate_(std::move(on_collate)) {}
  int64_t size() const override { return data_.size(); }
  DataInfo info() const override { return data_.info(); }
  Collated collate(const std::vector<int64_t>& indices) const override {
    if (on_collate_) on_collate_(indices);
    return data_.collate(indices);
  }

 private:
  static TensorMap fields(int64_t size) {
    TensorMap map;
    map.set("inputs", at::arange(size, at::kFloat));
    return map;
  }
  TensorDataset data_;
  std::function<void(const std::vector<int64_t>&)> on_collate_;
};

std::vector<int64_t> ids_of(const GlobalBatch& batch) {
  const auto* data = batch.local.ids.const_data_ptr<int64_t>();
  return {data, data + batch.local.size()};
}

// One batch as plain data: everything that must be equal.
struct Seen {
  int64_t epoch, consumed;
  double samples;
  std::vector<int64_t> ids;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> stream(const Dataset& dataset, const LoaderOptions& options, Cursor start,
                         int64_t batches) {
  Loader loader(dataset, options, start);
  std::vector<Seen> seen;
  for (int64_t i = 0; i < batches; ++i) {
    const auto batch = loader.next();
    seen.push_back({batch.epoch, batch.consumed, batch.count("samples"), ids_of(batch)});
  }
  return seen;
}

LoaderOptions options_of(int64_t global_batch, int64_t workers, int64_t prefetch) {
  return {.global_batch = global_batch,
          .seed = 5,
          .workers = workers,
          .prefetch = prefetch,
          .patience_seconds = 0};
}

TEST(Loader, options_that_give_no_batch_and_cursors_outside_the_data_are_refused) {
  const ProbeDataset dataset(10);
  EXPECT_THROW(Loader(dataset, options_of(0, 0, 1), {}), DataError);
  EXPECT_THROW(Loader(dataset, options_of(-4, 1, 1), {}), DataError);
  LoaderOptions drop = options_of(11, 1, 1);
  drop.keep_last = false;
  TANREN_EXPECT_CONTAINS(testing::error_of<DataError>([&] { Loader(dataset, drop, {}); }),
                         "10 samples give no batch of 11");
  TANREN_EXPECT_CONTAINS(testing::error_of<DataError>([&] {
                           Loader(dataset, options_of(4, 1, 1), {2, 11});
                         }),
                         "11 of 10 samples in epoch 2");
  EXPECT_THROW(Loader(dataset, options_of(4, 1, 1), {-1, 0}), DataError);
  EXPECT_THROW(Loader(dataset, options_of(4, 1, 1), {0, -1}), DataError);
}

TEST(Loader, an_exception_of_a_worker_comes_out_at_the_batch_it_belongs_to) {
  const ProbeDataset dataset(40, [](const std::vector<int64_t>& indices) {
    if (indices.front() == 20) throw DataError("[data] sample 20 is broken");
  });
  for (const int64_t workers : {0, 1, 3}) {
    LoaderOptions options = options_of(10, workers, 4);
    options.shuffle = false;
    Loader loader(dataset, options, {});
    EXPECT_EQ(loader.next().consumed, 10);
    EXPECT_EQ(loader.next().consumed, 20);
    TANREN_EXPECT_CONTAINS(testing::error_of<DataError>([&] { loader.next(); }), "sample 20");
    EXPECT_EQ(loader.next().consumed, 40);
  }
}

TEST(Loader, covers_every_epoch_exactly_and_never_crosses_one) {
  const ProbeDataset dataset(10);
  const auto seen = stream(dataset, options_of(4, 2, 3), {}, 6);
  std::vector<int64_t> consumed, epochs;
  for (const auto& batch : seen) {
    consumed.push_back(batch.consumed);
    epochs.push_back(batch.epoch);
    EXPECT_EQ(batch.samples, static_cast<double>(batch.ids.size()));
  }
  EXPECT_EQ(consumed, (std::vector<int64_t>{4, 8, 10, 4, 8, 10}));
  EXPECT_EQ(epochs, (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 3; ++i) {
      const auto& part = seen[epoch * 3 + i].ids;
      ids.insert(ids.end(), part.begin(), part.end());
    }
    const Order order(10, 5, epoch, true);
    for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(ids[i], order(i));
  }
}

TEST(Loader, drops_the_short_last_batch_where_asked) {
  const ProbeDataset dataset(10);
  LoaderOptions options = options_of(4, 1, 2);
  options.keep_last = false;
  const auto seen = stream(dataset, options, {}, 4);
  EXPECT_EQ(seen[1].consumed, 8);
  EXPECT_EQ(seen[2].epoch, 1);
  EXPECT_EQ(seen[2].consumed, 4);
  // A cursor in the dropped rest continues with the next epoch.
  EXPECT_EQ(stream(dataset, options, {0, 8}, 1), stream(dataset, options, {1, 0}, 1));
}

TEST(Loader, the_stream_is_the_same_for_any_workers_and_prefetch_depth) {
  // Later tickets finish first, so only reordering can bring them out in order.
  const ProbeDataset dataset(30, [](const std::vector<int64_t>& indices) {
    std::this_thread::sleep_for(std::chrono::microseconds(indices.front() % 3 * 300));
  });
  const auto expected = stream(dataset, options_of(4, 0, 0), {}, 20);
  for (const int64_t workers : {1, 2, 4}) {
    for (const int64_t prefetch : {0, 1, 2, 7}) {
      EXPECT_EQ(stream(dataset, options_of(4, workers, prefetch), {}, 20), expected)
          << workers << " workers, " << prefetch << " ahead";
    }
  }
}

// Bugs that other loaders had after a resume, in counters and order: Lightning#19367,
// accelerate#2016, data#1520.
TEST(Loader, resumes_at_the_consumed_sample_whatever_was_prefetched) {
  constexpr int64_t kBatches = 18;
  const ProbeDataset dataset(22);
  for (const bool keep_last : {true, false}) {
    LoaderOptions options = options_of(5, 2, 2);
    options.keep_last = keep_last;
    const auto whole = stream(dataset, options, {}, kBatches);
    for (int64_t stop = 0; stop <= kBatches; ++stop) {
      for (const int64_t prefetch : {1, 3, 8}) {
        options.prefetch = prefetch;
        options.workers = 2 + prefetch % 2;
        auto joined = stream(dataset, options, {}, stop);
        const Cursor cursor =
            stop == 0 ? Cursor{} : Cursor{joined.back().epoch, joined.back().consumed};
        const auto rest = stream(dataset, options, cursor, kBatches - stop);
        joined.insert(joined.end(), rest.begin(), rest.end());
        EXPECT_EQ(joined, whole) << "stopped after " << stop << ", prefetch " << prefetch;
      }
    }
  }
}

TEST(Loader, resuming_with_another_batch_size_still_sees_each_sample_of_the_epoch_once) {
  const ProbeDataset dataset(22);
  auto seen = stream(dataset, options_of(5, 2, 2), {}, 2);
  const auto rest = stream(dataset, options_of(4, 2, 2), {0, seen.back().consumed}, 4);
  seen.insert(seen.end(), rest.begin(), rest.begin() + 3);
  std::vector<int64_t> ids;
  for (const auto& batch : seen) ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
  std::sort(ids.begin(), ids.end());
  ASSERT_EQ(ids.size(), 22);
  for (int64_t i = 0; i < 22; ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(rest.back().epoch, 1);
  EXPECT_EQ(rest.back().consumed, 4);
}

TEST(Loader, ranks_cut_the_same_global_batch_and_some_may_get_nothing) {
  const ProbeDataset dataset(10);
  for (const int64_t world : {2, 3, 5}) {
    const auto whole = stream(dataset, options_of(4, 0, 0), {}, 6);
    std::vector<Seen> joined;
    for (int64_t rank = 0; rank < world; ++rank) {
      LoaderOptions options = options_of(4, 2, 2);
      options.rank = rank;
      options.world_size = world;
      const auto part = stream(dataset, options, {}, 6);
      if (rank == 0) {
        joined = part;
        continue;
      }
      for (size_t i = 0; i < joined.size(); ++i) {
        joined[i].ids.insert(joined[i].ids.end(), part[i].ids.begin(), part[i].ids.end());
        EXPECT_EQ(part[i].samples, joined[i].samples);  // global on every rank
      }
    }
    EXPECT_EQ(joined, whole) << world;
  }
}

TEST(Loader, works_ahead_by_the_prefetch_depth_and_no_further) {
  std::atomic<int> collated = 0;
  const ProbeDataset dataset(1000, [&](const std::vector<int64_t>&) { ++collated; });
  Loader loader(dataset, options_of(10, 3, 4), {});
  const auto settle = [&](int expected) {
    for (int i = 0; i < 1000 && collated < expected; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // time to go too far
    return collated.load();
  };
  EXPECT_EQ(settle(4), 4);
  loader.next();
  loader.next();
  EXPECT_EQ(settle(6), 6);
}

TEST(Loader, ends_without_waiting_for_batches_that_nobody_asked_for) {
  std::atomic<int> collated = 0;
  const ProbeDataset dataset(1000, [&](const std::vector<int64_t>&) {
    ++collated;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  { Loader loader(dataset, options_of(1, 2, 100), {}); }
  EXPECT_LE(collated, 4);
}

TEST(Loader, collates_cheap_batches_on_the_callers_thread_and_dear_ones_on_workers) {
  std::chrono::milliseconds cost{0};
  std::atomic<int> here = 0, elsewhere = 0;
  const auto caller = std::this_thread::get_id();
  const ProbeDataset dataset(100, [&](const std::vector<int64_t>&) {
    std::this_thread::sleep_for(cost);
    ++(std::this_thread::get_id() == caller ? here : elsewhere);
  });
  const auto expected = stream(dataset, options_of(4, 0, 0), {}, 40);
  EXPECT_EQ(here, 40);
  here = 0;

  LoaderOptions options = options_of(4, 2, 3);
  options.patience_seconds = 1e9;  // no collating costs that much, however busy the machine
  EXPECT_EQ(stream(dataset, options, {}, 40), expected);
  EXPECT_EQ(here, 40);
  EXPECT_EQ(elsewhere, 0);
  here = 0;

  cost = std::chrono::milliseconds(2);
  options.patience_seconds = 1e-3;
  EXPECT_EQ(stream(dataset, options, {}, 40), expected);
  EXPECT_EQ(here, 1);
  EXPECT_GE(elsewhere, 39);
}

TEST(Loader, workers_record_no_graph_and_open_no_team_of_threads) {
  std::atomic<int> threads = 0;
  std::atomic<bool> records = false;
  const ProbeDataset dataset(10, [&](const std::vector<int64_t>&) {
    at::rand({100, 100}).add_(1);
    threads = std::max(threads.load(), at::get_num_threads());
    if (at::GradMode::is_enabled()) records = true;
  });
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  stream(dataset, options_of(4, 2, 2), {}, 6);
  EXPECT_EQ(threads, 1);
  EXPECT_FALSE(records);
  EXPECT_EQ(at::get_num_threads(), 3);  // the threads of the step are unchanged
  at::set_num_threads(before);
}

TEST(Loader, says_how_long_the_step_waited) {
  const ProbeDataset dataset(10, [](const std::vector<int64_t>&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  Loader loader(dataset, options_of(4, 0, 0), {});
  EXPECT_GE(loader.next().wait_seconds, 0.02);
}

}  // namespace
}  // namespace tanren
