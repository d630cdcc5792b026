// The simulated accelerator itself: it computes as the CPU does, and reports each planted fault.
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/accelerator/collectives.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace tanren::sim {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr auto kType = c10::DeviceType::PrivateUse1;
const at::Device kDevice(kType, 0), kSecond(kType, 1);
// Runs before main, so before any backward.
const bool kInstalled = [] {
  install({.devices = 4, .bytes = size_t{256} << 20});
  return true;
}();

at::TensorOptions on(const at::Device& device, at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions(dtype).device(device);
}
at::Tensor pinned(int64_t size) {
  return at::empty({size}, at::TensorOptions(at::kFloat).pinned_memory(true));
}

class Accelerator : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(3); }
  void TearDown() override {
    fail_allocation(0);
    set_limit(0, size_t{256} << 20);
    take_fault(0);
    for (int i = 0; i < 4; ++i)
      at::accelerator::synchronizeDevice(static_cast<c10::DeviceIndex>(i));
    for (const auto& line : take_violations()) ADD_FAILURE() << line;
  }
  c10::Stream main_stream() const { return devices_.getStream(kDevice); }
  c10::Stream side_stream() const { return devices_.getStreamFromGlobalPool(kDevice); }
  // `after` waits for all work that `before` has so far.
  static void order(const c10::Stream& before, const c10::Stream& after) {
    c10::Event given(kType);
    given.record(before);
    given.block(after);
  }
  // Exactly one kind of violation, and its line has all of `parts`; prints it.
  static void expect_violation(const std::vector<std::string>& parts) {
    const auto found = take_violations();
    ASSERT_FALSE(found.empty());
    std::printf("  %s\n", found.front().c_str());
    for (const auto& part : parts) {
      EXPECT_NE(found.front().find(part), std::string::npos) << part << " in " << found.front();
    }
  }
  c10::impl::VirtualGuardImpl devices_{kType};
};

// A small network with AdamW and SGD by their fused kernels.
struct Net {
  Tensors weights, first, second, steps;
  Net(const Tensors& from, const at::Device& device) {
    for (const auto& weight : from) {
      weights.push_back(weight.to(device, false, true).detach().requires_grad_());
      first.push_back(at::zeros_like(weights.back()).detach());
      second.push_back(at::zeros_like(weights.back()).detach());
      steps.push_back(at::zeros({}, on(device)));
    }
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) const {
    at::Tensor hidden = at::gelu(at::linear(x, weights[0], weights[1]));
    hidden = at::layer_norm(hidden, {hidden.size(1)}, weights[2], weights[3]);
    return at::cross_entropy_loss(at::linear(hidden, weights[4]), y, {}, at::Reduction::Sum);
  }
  void step() {
    const at::NoGradGuard no_grad;
    Tensors gradients;
    for (const auto& weight : weights) gradients.push_back(weight.grad());
    const at::Tensor inverse = at::full({}, 0.5, steps[0].options());
    at::Tensor overflow = at::zeros({}, steps[0].options());
    if (gradients[0].scalar_type() == at::kFloat) {
      at::_amp_foreach_non_finite_check_and_unscale_(gradients, overflow, inverse);
    }
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(weights, gradients, first, second, {}, steps, 0.01, 0.9, 0.999, 0.01, 1e-8,
                      false, false, {}, overflow);
    at::_foreach_mul_(gradients, 0.1);
    at::_fused_sgd_(weights, gradients, first, 0.0, 0.9, 0.01, 0.0, false, false, true);
    for (auto& weight : weights) weight.mutable_grad().zero_();
  }
};

void expect_bitwise(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].cpu(), b[i].cpu())) << i;
}

TEST_F(Accelerator, is_the_one_that_torch_prefers) {
  EXPECT_EQ(at::accelerator::getAccelerator(), kType);
  EXPECT_EQ(at::accelerator::deviceCount(), 4);
  EXPECT_EQ(at::Device("sim:1"), kSecond);
}

TEST_F(Accelerator, trains_bitwise_as_the_cpu_in_fp64_and_fp32) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const auto o = at::TensorOptions(dtype);
    const Tensors start = {at::randn({32, 20}, o) * 0.2, at::randn({32}, o) * 0.1,
                           at::ones({32}, o), at::zeros({32}, o), at::randn({7, 32}, o) * 0.2};
    Net cpu(start, at::kCPU), device(start, kDevice);
    const at::Tensor x = at::randn({12, 20}, o), y = at::randint(7, {12}, at::kLong);
    const at::Tensor x_there = x.to(kDevice), y_there = y.to(kDevice);
    const int64_t before = counts().waits();
    for (int i = 0; i < 5; ++i) {
      cpu.loss(x, y).backward();
      cpu.step();
      device.loss(x_there, y_there).backward();
      device.step();
    }
    EXPECT_EQ(counts().waits(), before);
    expect_bitwise(device.weights, cpu.weights);
  }
}

TEST_F(Accelerator, computes_convolutions_norms_pooling_embeddings_and_attention_as_the_cpu) {
  const at::Tensor images = at::randn({2, 3, 8, 8}), kernel = at::randn({4, 3, 3, 3});
  const at::Tensor table = at::randn({9, 8}), ids = at::randint(9, {2, 6}, at::kLong);
  const auto results = [&](const at::Device& device) {
    const at::Tensor w = kernel.to(device).detach().requires_grad_();
    const at::Tensor mean = at::zeros({4}, on(device)), variance = at::ones({4}, on(device));
    const at::Tensor h =
        at::batch_norm(at::conv2d(images.to(device), w, {}, 2, 1), at::ones({4}, on(device)),
                       at::zeros({4}, on(device)), mean, variance, true, 0.1, 1e-5, false);
    at::max_pool2d(h.relu(), 2).pow(2).sum().backward();
    const at::Tensor e = table.to(device).detach().requires_grad_();
    const at::Tensor q = at::embedding(e, ids.to(device)).unsqueeze(1);
    at::scaled_dot_product_attention(q, q, q, {}, 0, true).pow(2).sum().backward();
    const at::Tensor rows = table.to(device).detach().requires_grad_();
    at::embedding(rows, ids.to(device), -1, false, /*sparse=*/true).pow(3).sum().backward();
    at::Tensor dense = at::zeros_like(rows).detach();
    dense.add_(rows.grad());
    return Tensors{w.grad(), mean, variance, dense, e.grad()};
  };
  const Tensors cpu = results(at::kCPU), device = results(kDevice);
  expect_bitwise({device.begin(), device.end() - 1}, {cpu.begin(), cpu.end() - 1});
  // The CPU computes attention in one kernel, whose rounding depends on the processor.
  const double largest = cpu.back().abs().max().item<double>();
  EXPECT_LT((device.back().cpu() - cpu.back()).abs().max().item<double>(), 1e-5 * largest);
}

TEST_F(Accelerator, computes_an_lstm_cell_as_the_cpu) {
  const at::Tensor x = at::randn({3, 5}, at::kDouble), w = at::randn({16, 5}, at::kDouble),
                   u = at::randn({16, 4}, at::kDouble), b = at::randn({16}, at::kDouble);
  const auto gradients = [&](const at::Device& device) {
    Tensors all;
    for (const auto& t : {x, w, u, b}) all.push_back(t.to(device).detach().requires_grad_());
    at::Tensor h = at::zeros({3, 4}, on(device, at::kDouble)), c = h;
    for (int i = 0; i < 3; ++i)
      std::tie(h, c) = at::lstm_cell(all[0], {h, c}, all[1], all[2], all[3], all[3]);
    (h.pow(2).sum() + c.sum()).backward();
    Tensors found;
    for (const auto& t : all) found.push_back(t.grad().cpu());
    return found;
  };
  const Tensors cpu = gradients(at::kCPU), device = gradients(kDevice);
  for (size_t i = 0; i < cpu.size(); ++i)
    EXPECT_TRUE(at::allclose(device[i], cpu[i], 1e-12, 1e-14));
}

TEST_F(Accelerator, casts_by_cudas_lists) {
  at::autocast::set_autocast_enabled(kType, true);
  at::autocast::set_autocast_dtype(kType, at::kBFloat16);
  const at::Tensor h = at::linear(at::randn({4, 8}, on(kDevice)), at::randn({8, 8}, on(kDevice)));
  const at::Tensor probabilities = at::softmax(h, 1);
  at::autocast::set_autocast_enabled(kType, false);
  at::autocast::clear_cache();
  EXPECT_EQ(h.scalar_type(), at::kBFloat16);
  EXPECT_EQ(probabilities.scalar_type(), at::kFloat);
}

TEST_F(Accelerator, draws_again_from_a_seed_and_from_a_state) {
  at::manual_seed(11);
  const at::Tensor first = at::randn({100}, on(kDevice)).cpu();
  at::Generator generator = at::globalContext().defaultGenerator(kDevice);
  const at::Tensor state = generator.get_state();
  const at::Tensor second = at::dropout(at::ones({100}, on(kDevice)), 0.5, true).cpu();
  EXPECT_FALSE(at::equal(first, at::randn({100}, on(kDevice)).cpu()));
  generator.set_state(state);
  EXPECT_TRUE(at::equal(at::dropout(at::ones({100}, on(kDevice)), 0.5, true).cpu(), second));
  at::manual_seed(11);
  EXPECT_TRUE(at::equal(at::randn({100}, on(kDevice)).cpu(), first));
}

TEST_F(Accelerator, copies_between_devices_and_refuses_two_in_one_operator) {
  const at::Tensor a = at::arange(1000, on(kDevice)) * 2;
  const at::Tensor b = a.to(kSecond) + 1;
  EXPECT_TRUE(at::equal(b.cpu(), at::arange(1000, at::kFloat) * 2 + 1));
  EXPECT_THROW((void)(a + b), c10::Error);
  EXPECT_THROW((void)(a + at::ones({1000})), c10::Error);
  EXPECT_TRUE(at::equal((a + at::ones({})).cpu(), b.cpu()));
}

TEST_F(Accelerator, counts_what_a_cuda_host_waits_for) {
  const at::Tensor a = at::ones({8}, on(kDevice));
  const auto waits_of = [](const std::function<void()>& work) {
    const Counts before = counts();
    work();
    const Counts after = counts();
    return std::vector<int64_t>{after.downloads - before.downloads, after.uploads - before.uploads,
                                after.synchronisations - before.synchronisations};
  };
  using Waits = std::vector<int64_t>;
  EXPECT_EQ(waits_of([&] { (void)a.sum().item<float>(); }), (Waits{1, 0, 0}));
  EXPECT_EQ(waits_of([&] { (void)a.cpu(); }), (Waits{1, 0, 0}));
  EXPECT_EQ(waits_of([&] { (void)a.nonzero(); }), (Waits{1, 0, 0}));
  EXPECT_EQ(waits_of([&] { (void)at::ones({8}).to(kDevice); }), (Waits{0, 1, 0}));
  EXPECT_EQ(waits_of([&] { (void)at::ones({8}).to(kDevice, true); }), (Waits{0, 0, 0}));
  EXPECT_EQ(waits_of([&] { (void)at::ones({8}).pin_memory().to(kDevice, true); }),
            (Waits{0, 0, 0}));
  EXPECT_EQ(waits_of([&] { (void)a.index({at::tensor({1, 2})}); }), (Waits{0, 1, 0}));
  EXPECT_EQ(waits_of([&] { at::accelerator::synchronizeDevice(0); }), (Waits{0, 0, 1}));
  EXPECT_EQ(waits_of([&] { (void)(a * 2 + a.mean()); }), (Waits{0, 0, 0}));
}

TEST_F(Accelerator, runs_out_of_memory_when_told_and_at_its_limit_and_then_has_not_computed) {
  fail_allocation(num_allocations() + 1);
  EXPECT_THROW((void)at::empty({100}, on(kDevice)), c10::OutOfMemoryError);
  (void)at::empty({100}, on(kDevice));
  set_limit(0, 64 << 20);
  EXPECT_THROW((void)at::empty({65 << 20}, on(kDevice, at::kByte)), c10::OutOfMemoryError);
  for (int i = 0; i < 8; ++i) (void)at::empty({(i + 20) << 20}, on(kDevice, at::kByte));  // cached
  const auto [free_bytes, total] = at::accelerator::getMemoryInfo(0);
  EXPECT_EQ(total, size_t{64} << 20);
  EXPECT_LE(free_bytes, total);

  const at::Tensor mean = at::zeros({4}, on(kDevice)), variance = at::ones({4}, on(kDevice));
  const at::Tensor x = at::randn({6, 4, 3, 3}, on(kDevice));
  fail_allocation(num_allocations() + 2);
  EXPECT_THROW((void)at::native_batch_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5),
               c10::OutOfMemoryError);
  EXPECT_TRUE(at::equal(mean.cpu(), at::zeros({4})));
}

TEST_F(Accelerator, tells_of_a_kernels_error_at_the_hosts_next_waits) {
  const at::Tensor scores = at::randn({2, 3}, on(kDevice));
  const at::Tensor loss = at::cross_entropy_loss(scores, at::tensor({1, 7}, at::kLong).to(kDevice));
  const at::Tensor later = loss + 1;
  for (int i = 0; i < 2; ++i) {
    try {
      (void)later.item<float>();
      FAIL();
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      EXPECT_NE(text.find("device-side assert triggered"), std::string::npos) << text;
      EXPECT_NE(text.find("Target 7 is out of bounds"), std::string::npos) << text;
    }
  }
  EXPECT_THROW((void)(scores + at::ones({5}, on(kDevice))), c10::Error);  // at once: shapes
}

// ---- planted faults: each pair is right, then wrong ----

class AcceleratorFault : public Accelerator, public ::testing::WithParamInterface<bool> {
 protected:
  bool right() const { return GetParam(); }
  void judge(const std::vector<std::string>& parts) const {
    if (!right()) expect_violation(parts);
  }
};
INSTANTIATE_TEST_SUITE_P(RightThenWrong, AcceleratorFault, ::testing::Values(true, false));

TEST_P(AcceleratorFault, an_upload_beside_the_step_is_used_without_a_wait) {
  const auto side = side_stream();
  const at::Tensor host = at::full({1000}, 3.0F).pin_memory();
  at::Tensor there;
  {
    const c10::StreamGuard guard(side);
    there = host.to(kDevice, true);
  }
  if (right()) order(side, main_stream());
  const at::Tensor used = there + 1;
  there.record_stream(main_stream());
  at::accelerator::synchronizeDevice(0);
  judge({"aten::add", "reads what copy to the device on stream", "wrote, and nothing orders them"});
}

TEST_P(AcceleratorFault, memory_is_freed_while_another_stream_reads_it) {
  const auto side = side_stream();
  at::Tensor a = at::full({1000}, 5.0F, on(kDevice));
  const at::Tensor host = pinned(1000);
  order(main_stream(), side);
  {
    const c10::StreamGuard guard(side);
    host.copy_(a, true);
    if (right()) a.record_stream(side);
  }
  a = at::Tensor();
  judge({"is freed while copy to the host on stream", "record_stream is missing"});
}

TEST_P(AcceleratorFault, a_copy_beside_the_step_does_not_wait_for_the_maker) {
  const auto side = side_stream();
  const at::Tensor a = at::full({1000}, 5.0F, on(kDevice));
  const at::Tensor host = pinned(1000);
  if (right()) order(main_stream(), side);
  {
    const c10::StreamGuard guard(side);
    host.copy_(a, true);
    a.record_stream(side);
  }
  at::accelerator::synchronizeDevice(0);
  judge({"copy to the host", "reads what aten::fill_"});
}

TEST_P(AcceleratorFault, a_block_is_used_on_a_stream_that_does_not_follow_its_last_owner) {
  at::Tensor a = at::full({1000}, 5.0F, on(kDevice));
  a = at::Tensor();
  const at::Tensor again = at::empty({1000}, on(kDevice));  // the same memory
  const auto side = side_stream();
  if (right()) order(main_stream(), side);
  {
    const c10::StreamGuard guard(side);
    again.fill_(1);
  }
  at::accelerator::synchronizeDevice(0);
  judge({"aten::fill_", "writes what aten::fill_"});
}

TEST_P(AcceleratorFault, a_pinned_source_changes_under_its_upload) {
  at::Tensor host = at::full({1000}, 3.0F).pin_memory();
  const at::Tensor there = host.to(kDevice, true);
  if (right()) at::accelerator::synchronizeDevice(0);
  host.fill_(4);
  at::accelerator::synchronizeDevice(0);
  judge({"pinned memory changed while a copy on stream 0 of sim:0 read it"});
}

TEST_P(AcceleratorFault, downloaded_bytes_are_read_before_the_host_has_waited) {
  const at::Tensor host = pinned(10);
  host.copy_(at::full({10}, 5.0F, on(kDevice)), true);
  if (right()) at::accelerator::synchronizeDevice(0);
  EXPECT_EQ(host.sum().item<float>() == 50, right());  // wrong: NaN, without a violation
}

TEST_P(AcceleratorFault, an_upload_follows_a_download_without_order) {
  const auto side = side_stream();
  const at::Tensor a = at::full({10}, 5.0F, on(kDevice)), host = pinned(10);
  host.copy_(a, true);
  if (right()) order(main_stream(), side);
  at::Tensor back;
  {
    const c10::StreamGuard guard(side);
    back = host.to(kDevice, true);
  }
  at::accelerator::synchronizeDevice(0);
  EXPECT_EQ(back.sum().item<float>() == 50, right());
  judge({"reads pinned memory that a copy on stream 0 of sim:0 writes"});
}

// Two ranks, each with its device.
void on_two_ranks(const std::function<void(c10d::Backend&, const at::Device&)>& work) {
  const auto group = RankGroup::of(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = group->backend(rank);
      work(*backend, at::Device(kType, static_cast<c10::DeviceIndex>(rank)));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_P(AcceleratorFault, a_sum_over_ranks_is_read_before_its_wait) {
  on_two_ranks([&](c10d::Backend& backend, const at::Device& device) {
    std::vector<at::Tensor> sum = {
        at::full({4}, 1.0F + static_cast<float>(device.index()), on(device))};
    const auto work = backend.allreduce(sum);
    if (!right()) {
      while (!work->isCompleted()) std::this_thread::yield();
    } else {
      work->wait();
    }
    const at::Tensor twice = sum[0] * 2;
    at::accelerator::synchronizeDevice(device.index());
    EXPECT_TRUE(at::equal(twice.cpu(), at::full({4}, 6.0F)));
  });
  judge({"aten::mul", "reads what sum over ranks on stream ", "wrote"});
}

TEST_P(AcceleratorFault, a_gathers_source_is_dropped_before_its_wait) {
  on_two_ranks([&](c10d::Backend& backend, const at::Device& device) {
    at::Tensor part = at::ones({4}, on(device)), whole = at::empty({8}, on(device));
    const auto work = backend._allgather_base(whole, part);
    while (!work->isCompleted()) std::this_thread::yield();
    if (!right()) part = at::Tensor();
    work->wait();
    part = at::Tensor();
    EXPECT_EQ(whole.sum().item<float>(), 8);
  });
  judge({"is freed while gather on stream ", "record_stream is missing"});
}

TEST_P(AcceleratorFault, a_message_is_read_before_its_wait) {
  on_two_ranks([&](c10d::Backend& backend, const at::Device& device) {
    const int other = 1 - device.index();
    std::vector<at::Tensor> mine = {at::full({4}, 3.0F, on(device))},
                            theirs = {at::empty({4}, on(device))};
    backend.startCoalescing();
    backend.recv(theirs, other, 0);
    backend.send(mine, other, 0);
    const auto work = backend.endCoalescing();
    if (!right()) {
      while (!work->isCompleted()) std::this_thread::yield();
    } else {
      work->wait();
    }
    const at::Tensor twice = theirs[0] * 2;
    at::accelerator::synchronizeDevice(device.index());
    EXPECT_TRUE(at::equal(twice.cpu(), at::full({4}, 6.0F)));
  });
  judge({"aten::mul", "reads what message on stream ", "wrote"});
}

TEST_P(AcceleratorFault, a_message_leaves_before_its_maker_has_ended) {
  on_two_ranks([&](c10d::Backend& backend, const at::Device& device) {
    std::vector<at::Tensor> tensors = {at::empty({4}, on(device))};
    if (device.index() == 1) {
      backend.recv(tensors, 0, 0)->wait();
    } else {
      const auto side = devices_.getStreamFromGlobalPool(device);
      order(devices_.getStream(device), side);
      {
        const c10::StreamGuard guard(side);
        tensors[0].fill_(3);
      }
      if (right()) order(side, devices_.getStream(device));
      backend.send(tensors, 1, 0)->wait();
    }
    at::accelerator::synchronizeDevice(device.index());
  });
  judge({"message on stream ", "reads what aten::fill_"});
}

TEST_F(Accelerator, sends_the_messages_of_a_group_in_both_directions_and_groups_in_order) {
  const auto group = RankGroup::of(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const at::Device device(kType, static_cast<c10::DeviceIndex>(rank));
      const auto backend = group->part("pair", 2)->backend(rank);
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      std::vector<Tensors> kept;
      for (int i = 0; i < 3; ++i) {
        kept.push_back({at::full({2}, 10 * rank + i, on(device))});
        kept.push_back({at::empty({2}, on(device))});
        backend->startCoalescing();
        backend->send(kept[kept.size() - 2], 1 - rank, 0);
        backend->recv(kept.back(), 1 - rank, 0);
        works.push_back(backend->endCoalescing());
      }
      for (int i = 2; i >= 0; --i) {
        works[static_cast<size_t>(i)]->wait();
        EXPECT_EQ(kept[static_cast<size_t>(2 * i + 1)][0].sum().item<float>(),
                  2.0F * static_cast<float>(10 * (1 - rank) + i));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// As with NCCL on one stream: each rank's first operation waits for the other rank's second one.
TEST_F(Accelerator, lets_two_ranks_whose_orders_differ_wait_for_each_other) {
  on_two_ranks([&](c10d::Backend& backend, const at::Device& device) {
    std::vector<at::Tensor> message = {at::ones({2}, on(device))},
                            sum = {at::ones({2}, on(device))};
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    if (device.index() == 0) works.push_back(backend.send(message, 1, 0));
    works.push_back(backend.allreduce(sum));
    if (device.index() == 1) works.push_back(backend.recv(message, 0, 0));
    for (const auto& work : works) {
      EXPECT_THROW(work->wait(std::chrono::milliseconds(100)), c10::Error);
    }
  });
}

TEST_F(Accelerator, sums_gathers_scatters_and_sends_over_ranks) {
  on_two_ranks([&](c10d::Backend& backend, const at::Device& device) {
    const auto rank = static_cast<float>(device.index());
    at::Tensor whole = at::arange(4, on(device)) + rank, part = at::empty({2}, on(device));
    backend._reduce_scatter_base(part, whole)->wait();
    EXPECT_TRUE(at::equal(part.cpu(), (at::arange(2, at::kFloat) + 2 * rank) * 2 + 1));
    std::vector<at::Tensor> sent = {at::full({2}, rank, on(device))};
    c10d::BroadcastOptions from_one;
    from_one.rootRank = 1;
    backend.broadcast(sent, from_one)->wait();
    EXPECT_TRUE(at::equal(sent[0].cpu(), at::ones({2})));
  });
}

TEST(AcceleratorDeath, the_host_touches_device_memory) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        const at::Tensor a = at::ones({4}, on(kDevice));
        std::printf("%f", static_cast<double>(a.const_data_ptr<float>()[2]));
      },
      "sim: the host touched memory of sim:0: byte 8 of a block of 512 bytes");
}

}  // namespace
}  // namespace tanren::sim
