#include "tanren/parallel/reducer.h"

#include "tanren/base/error.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/parallel/sharded_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <vector>

namespace tanren {
namespace {

constexpr int kRanks = 3;

// Three layers of a chain; the second is bypassed if `skips`.
struct Chain {
  explicit Chain(at::ScalarType type = at::kDouble) {
    for (const int64_t width : {5, 4, 3}) {
      parameters.push_back(
          ((at::arange(width * width, type) + 1).view({width, width}) * 0.01).requires_grad_());
    }
  }
  at::Tensor loss(double input, bool skips = false) const {
    at::Tensor x = at::full({1, 5}, input, parameters[0].options());
    x = at::mm(x, parameters[0]).tanh().narrow(1, 0, 4);
    if (!skips) x = at::mm(x, parameters[1]).tanh();
    return at::mm(x.narrow(1, 0, 3), parameters[2]).sum();
  }
  std::vector<at::Tensor> parameters;
};

void backward(const at::Tensor& loss) { torch::autograd::backward({loss}, {at::ones_like(loss)}); }

// The gradient of one rank that sees every input.
at::Tensor alone(const std::vector<double>& inputs, bool skips = false) {
  const Chain chain;
  Gradients gradients(chain.parameters);
  for (const double input : inputs) backward(chain.loss(input, skips));
  return gradients.flat()[0].clone();
}

// Forwards every call, and keeps the sizes of what is summed.
class Recorder final : public Communicator {
 public:
  explicit Recorder(Communicator& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank(); }
  int world_size() const override { return comm_.world_size(); }
  std::string_view name() const override { return comm_.name(); }
  Work start_sum(const at::Tensor& tensor) override {
    sizes.push_back(tensor.numel());
    return comm_.start_sum(tensor);
  }
  Work start_sum_scatter(const at::Tensor& part, const at::Tensor& whole) override {
    return comm_.start_sum_scatter(part, whole);
  }
  Work start_gather(const at::Tensor& whole, const at::Tensor& part) override {
    return comm_.start_gather(whole, part);
  }
  Work start_broadcast(const at::Tensor& tensor, int root) override {
    return comm_.start_broadcast(tensor, root);
  }
  void cancel(const std::string& why) override { comm_.cancel(why); }

  std::vector<int64_t> sizes;

 private:
  Communicator& comm_;
};

constexpr ReducerOptions kSmall{.first_bucket_bytes = 80, .bucket_bytes = 140};

TEST(Reducer, sums_over_ranks_are_what_one_rank_would_have_and_buckets_go_early) {
  const ThreadGroup group(kRanks);
  const at::Tensor expected = alone({0.1, 0.2, 0.3});
  std::vector<at::Tensor> sums(kRanks);
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain chain;
    Gradients gradients(chain.parameters);
    Reducer reducer({&gradients}, comm, kSmall);
    EXPECT_EQ(reducer.num_buckets(), 3);
    reducer.begin();
    const SyncScope last(reducer, true);
    backward(chain.loss(0.1 * (comm.rank() + 1)));
    reducer.finish();
    EXPECT_EQ(reducer.num_overlapped(), 3);
    sums[static_cast<size_t>(comm.rank())] = gradients.flat()[0].clone();
  });
  for (const auto& sum : sums) {
    EXPECT_TRUE(at::allclose(sum, expected, 1e-12, 1e-14));
    EXPECT_TRUE(at::equal(sum, sums[0]));
  }
  EXPECT_EQ(group.num_operations(), 3);
}

TEST(Reducer, several_microsteps_are_summed_once) {
  const ThreadGroup group(kRanks);
  const at::Tensor expected = alone({0.1, 0.2, 0.3, 0.4, 0.5, 0.6});
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain chain;
    Gradients gradients(chain.parameters);
    Reducer reducer({&gradients}, comm, kSmall);
    for (int window = 0; window < 2; ++window) {
      gradients.zero();
      reducer.begin();
      backward(chain.loss(0.1 * (2 * comm.rank() + 1)));
      const SyncScope last(reducer, true);
      backward(chain.loss(0.1 * (2 * comm.rank() + 2)));
      reducer.finish();
      EXPECT_TRUE(at::allclose(gradients.flat()[0], expected, 1e-12, 1e-14));
    }
  });
  EXPECT_EQ(group.num_operations(), 2 * 3 + 1);  // and one for the order
}

// Layers are registered in reverse order of use, so that the first bucket is completed last.
TEST(Reducer, buckets_go_in_the_order_in_which_the_first_window_completed_them) {
  const ThreadGroup group(kRanks);
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain chain;
    Gradients gradients({chain.parameters.rbegin(), chain.parameters.rend()});
    Recorder recorder(comm);
    Reducer reducer({&gradients}, recorder, kSmall);
    std::vector<at::Tensor> sums;
    for (int window = 0; window < 3; ++window) {
      gradients.zero();
      reducer.begin();
      const SyncScope last(reducer, true);
      backward(chain.loss(0.1 * (comm.rank() + 1)));
      reducer.finish();
      sums.push_back(gradients.flat()[0].clone());
    }
    EXPECT_EQ(recorder.sizes, (std::vector<int64_t>{25, 16, 9, 9, 16, 25, 9, 16, 25}));
    EXPECT_TRUE(at::equal(sums[1], sums[0]));
    EXPECT_TRUE(at::equal(sums[2], sums[0]));
  });
}

TEST(Reducer, a_rank_without_samples_and_one_that_skips_a_layer_still_take_part) {
  const ThreadGroup group(kRanks);
  const at::Tensor expected = alone({0.1}) + alone({0.2}, /*skips=*/true);
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain chain;
    Gradients gradients(chain.parameters);
    Reducer reducer({&gradients}, comm, kSmall);
    reducer.begin();
    const SyncScope last(reducer, true);
    if (comm.rank() < 2) backward(chain.loss(0.1 * (comm.rank() + 1), comm.rank() == 1));
    reducer.finish();
    EXPECT_TRUE(at::allclose(gradients.flat()[0], expected, 1e-12, 1e-14));
  });
}

// Issue 22: a rank without samples sent the gradients of the window before.
TEST(Reducer, of_gradients_that_were_set_to_none_sums_0_where_nobody_computes_them) {
  for (const bool overlap : {false, true}) {
    const ThreadGroup group(kRanks);
    testing::on_ranks(group, kRanks, [&](Communicator& comm) {
      const Chain chain;
      Gradients gradients(chain.parameters);
      Reducer reducer({&gradients}, comm,
                      {.first_bucket_bytes = 80, .bucket_bytes = 140, .overlap = overlap});
      for (int window = 0; window < 3; ++window) {
        for (const at::Tensor& parameter : chain.parameters) parameter.mutable_grad().reset();
        reducer.begin();
        const SyncScope last(reducer, true);
        if (comm.rank() == 0 || window == 0) backward(chain.loss(0.1, /*skips=*/window == 2));
        reducer.finish();
        const at::Tensor expected = window == 0 ? 3 * alone({0.1}) : alone({0.1}, window == 2);
        EXPECT_TRUE(at::allclose(gradients.flat()[0], expected, 1e-12, 1e-14)) << window;
      }
    });
  }
}

TEST(Reducer, what_fires_twice_in_a_last_microstep_goes_once) {
  const ThreadGroup group(kRanks);
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain chain;
    Gradients gradients(chain.parameters);
    Reducer reducer({&gradients}, comm);
    EXPECT_EQ(reducer.num_buckets(), 1);
    reducer.begin();
    const SyncScope last(reducer, true);
    // A microstep that broke off after the last layer: the rest comes from a second backward.
    const at::Tensor loss = chain.loss(0.1);
    torch::autograd::backward({loss}, {at::ones_like(loss)}, true, false, {chain.parameters[2]});
    torch::autograd::backward({loss}, {at::ones_like(loss)}, false, false,
                              {chain.parameters[0], chain.parameters[1]});
    reducer.finish();
    EXPECT_TRUE(at::allclose(gradients.flat()[0], 3 * alone({0.1}), 1e-12, 1e-14));
  });
  EXPECT_EQ(group.num_operations(), 1);
}

TEST(Reducer, buckets_of_two_dtypes_and_two_objectives_keep_one_order) {
  const ThreadGroup group(kRanks);
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain wide, narrow(at::kFloat), other;
    std::vector<at::Tensor> mixed = wide.parameters;
    mixed.insert(mixed.end(), narrow.parameters.begin(), narrow.parameters.end());
    Gradients first(mixed), second(other.parameters);
    Reducer reducer({&first, &second}, comm);
    EXPECT_EQ(reducer.num_buckets(), 3);
    reducer.begin();
    const SyncScope last(reducer, true);
    backward(wide.loss(0.1));
    if (comm.rank() != 1) backward(narrow.loss(0.1));  // elsewhere it waits for finish
    backward(other.loss(0.1));
    reducer.finish();
    EXPECT_TRUE(at::allclose(second.flat()[0], 3 * alone({0.1}), 1e-12, 1e-14));
  });
}

TEST(Reducer, a_cancel_ends_a_rank_that_waits) {
  const ThreadGroup group(kRanks);
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain chain;
    Gradients gradients(chain.parameters);
    Reducer reducer({&gradients}, comm);
    reducer.begin();
    if (comm.rank() == 2) return comm.cancel("rank 2 stopped: disk full");
    EXPECT_THROW(reducer.finish(), CommError);
  });
}

TEST(Reducer, without_overlap_every_bucket_waits_for_the_end) {
  const ThreadGroup group(kRanks);
  testing::on_ranks(group, kRanks, [&](Communicator& comm) {
    const Chain chain;
    Gradients gradients(chain.parameters);
    Reducer reducer({&gradients}, comm,
                    {.first_bucket_bytes = 80, .bucket_bytes = 140, .overlap = false});
    reducer.begin();
    const SyncScope last(reducer, true);
    backward(chain.loss(0.1));
    reducer.finish();
    EXPECT_EQ(reducer.num_overlapped(), 0);
    EXPECT_EQ(reducer.num_reductions(), 3);
    EXPECT_TRUE(at::allclose(gradients.flat()[0], 3 * alone({0.1}), 1e-12, 1e-14));
  });
}

// Half the bytes, and the rounding of the wire's dtype: a relative error of 2^-8 or 2^-11 an
// element.
TEST(Reducer, compressed_gradients_are_the_sum_to_the_wires_rounding) {
  for (const at::ScalarType wire : {at::kBFloat16, at::kHalf}) {
    const ThreadGroup group(kRanks);
    const at::Tensor expected = alone({0.1, 0.2, 0.3}).to(at::kFloat);
    std::vector<at::Tensor> sums(kRanks);
    testing::on_ranks(group, kRanks, [&](Communicator& comm) {
      const Chain chain(at::kFloat);
      Gradients gradients(chain.parameters);
      Reducer reducer({&gradients}, comm, {.wire = wire});
      reducer.begin();
      const SyncScope last(reducer, true);
      backward(chain.loss(0.1 * (comm.rank() + 1)));
      reducer.finish();
      sums[static_cast<size_t>(comm.rank())] = gradients.flat()[0].clone();
    });
    EXPECT_TRUE(at::allclose(sums[0], expected, wire == at::kHalf ? 3e-3 : 2e-2, 1e-6));
    EXPECT_FALSE(at::equal(sums[0], expected));
    EXPECT_TRUE(at::equal(sums[0], sums[2]));
    EXPECT_EQ(group.num_bytes(), expected.numel() * 2);
  }
}

TEST(Reducer, gives_each_rank_the_sum_of_its_part_where_they_share_and_gathers_what_it_updates) {
  const at::Tensor expected = alone({0.1, 0.2, 0.3});
  for (const bool transient : {false, true}) {
    const ThreadGroup group(kRanks);
    testing::on_ranks(group, kRanks, [&](Communicator& comm) {
      const Chain chain, before;
      const Sharding sharding{
          .rank = comm.rank(),
          .layout = {.first_bucket_bytes = 80, .bucket_bytes = 140, .parts = kRanks, .unit = 2},
          .transient = transient};
      Gradients gradients(chain.parameters, sharding);
      ShardedParameters shards(gradients);
      Reducer reducer({&gradients}, comm);
      EXPECT_EQ(reducer.num_buckets(), 3);
      for (int window = 0; window < 2; ++window) {
        gradients.zero();
        reducer.begin();
        if (comm.rank() < 3) {
          const SyncScope last(reducer, true);
          backward(chain.loss(0.1 * (comm.rank() + 1)));
        }
        reducer.finish();
      }
      const at::NoGradGuard no_grad;
      for (const at::Tensor& own : shards.owned()) at::Tensor(own).sub_(own.grad());
      shards.start_gather(comm);
      shards.wait();
      int64_t first = 0;
      for (size_t i = 0; i < chain.parameters.size(); ++i) {
        const at::Tensor& parameter = chain.parameters[i];
        const at::Tensor sum = expected.narrow(0, first, parameter.numel());
        EXPECT_TRUE(at::allclose(parameter, before.parameters[i] - sum.view(parameter.sizes()),
                                 1e-12, 1e-14));
        EXPECT_EQ(parameter.grad().defined(), !transient);
        first += parameter.numel();
      }
    });
    EXPECT_EQ(group.num_operations(),
              3 + 3 + 1 + 3);  // two windows, the order between, a gathering
  }
}

TEST(Reducer, of_one_rank_does_nothing) {
  const auto comm = single_communicator();
  const Chain chain;
  Gradients gradients(chain.parameters);
  Reducer reducer({&gradients}, *comm);
  EXPECT_EQ(reducer.num_buckets(), 0);
  reducer.begin();
  backward(chain.loss(0.1));
  reducer.finish();
  EXPECT_TRUE(at::equal(gradients.flat()[0], alone({0.1})));
}

}  // namespace
}  // namespace tanren
