// A run recovers from a lack of memory: whichever allocation of a step fails, the step is applied
// once, with the numbers of the undisturbed step, and no memory leaks.
#include "tests/support/allocations.h"
#include "tests/support/eventful.h"
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/testing.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/train/evaluate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>

namespace tanren::testing {
namespace {

RunConfig gpt_config() {
  auto config = tiny_config("gpt2");
  config.model.num_layers = 2;
  config.model.hidden_size = 16;
  config.model.num_heads = 2;
  config.model.vocab_size = 50;
  config.data.train.fields = {"inputs: int[12] in [0, 49]", "labels: int[12] in [0, 49]"};
  config.batch.global_batch = "8";
  config.memory.limit = "8GiB";  // installs our allocator, under a sanitizer too
  return config;
}

RunConfig batch_norm_config() {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.batch.global_batch = "8";
  config.batch.microbatch = 4;
  config.memory.limit = "8GiB";
  return config;
}

class RecoveryTest : public ::testing::Test {
 protected:
  void TearDown() override {
    fail_cpu_allocation(INT64_MAX);
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

struct Injected {
  int64_t allocations = 0;  // of the step; each failed once
  int64_t recoveries = 0;
  double worst = 0;  // relative distance of the weights after it
  bool bitwise = true;
};

// Lets each allocation of the second step fail once, and compares the weights after the step with
// those of an undisturbed run.
Injected inject_everywhere(const RunConfig& config) {
  TinyRun undisturbed(config);
  undisturbed.step();
  const auto batch_of = [](TinyRun& run) { return run.loader->next(); };
  undisturbed.step(batch_of(undisturbed));
  const at::Tensor expected = undisturbed.weights();

  Injected result;
  for (int64_t index = 0;; ++index) {
    TinyRun run(config);
    run.step();
    const GlobalBatch batch = batch_of(run);
    const int64_t live_before = cpu_memory_stats().live_bytes;
    fail_cpu_allocation(index);
    const StepReport report = run.step(batch);
    const bool failed = cpu_allocations_until_failure() < 0;
    fail_cpu_allocation(INT64_MAX);
    EXPECT_EQ(report.objectives[0].step, 2) << index;
    EXPECT_EQ(cpu_memory_stats().live_bytes, live_before) << index;
    const at::Tensor got = run.weights();
    result.worst = std::max(result.worst, relative(got, expected));
    result.bitwise = result.bitwise && at::equal(got, expected);
    if (!failed) return result;
    ++result.allocations;
    result.recoveries += run.parts.recovery->num_failures();
  }
}

// (A failed step is repeated in one microstep a sample. Two layers: the next test.)
TEST_F(RecoveryTest, any_allocation_of_a_gpt_step_may_fail_once_in_fp64) {
  auto config = gpt_config();
  config.model.num_layers = 1;
  config.batch.global_batch = "4";
  const Injected result = inject_everywhere(config);
  std::printf("gpt2: %lld allocations failed, %lld microsteps recovered, weights within %.1e\n",
              static_cast<long long>(result.allocations), static_cast<long long>(result.recoveries),
              result.worst);
  EXPECT_GT(result.allocations, 100);
  EXPECT_GT(result.recoveries, 100);
  EXPECT_LT(result.worst, 1e-10);
}

TEST_F(RecoveryTest, at_the_same_split_the_weights_are_bitwise_those_of_the_undisturbed_step) {
  auto config = gpt_config();
  config.precision.mode = "fp32";
  config.model.dropout = 0.1;
  config.memory.recovery = "same_split";
  const Injected result = inject_everywhere(config);
  EXPECT_GT(result.recoveries, 100);
  EXPECT_TRUE(result.bitwise);
}

TEST_F(RecoveryTest, batch_norm_keeps_its_split_and_its_statistics) {
  const Injected result = inject_everywhere(batch_norm_config());
  std::printf("convnet, batch norm: %lld allocations failed, %lld microsteps recovered\n",
              static_cast<long long>(result.allocations),
              static_cast<long long>(result.recoveries));
  EXPECT_GT(result.recoveries, 50);
  EXPECT_TRUE(result.bitwise);
}

// Issue 21: an overflow was measured in a copy of all gradients.
TEST_F(RecoveryTest, any_allocation_of_an_overflow_a_skip_an_evaluation_or_a_checkpoint_may_fail) {
  const auto config = eventful_config();
  const auto prepared = [&](TinyRun& run) {
    run.parts.plan.evaluate.batch = 16;
    run.step();
    return events_of([&] { return run.loader->next(); });
  };
  TinyRun undisturbed(config);
  const TemporaryFolder expected_folder;
  const double expected = go_through(undisturbed, prepared(undisturbed), expected_folder.path());
  const at::Tensor weights = undisturbed.weights();
  int64_t allocations = 0, recoveries = 0;
  bool failed = true;
  const int64_t stride = allocation_stride(3);
  for (int64_t index = first_allocation(stride); failed; index += stride, ++allocations) {
    SCOPED_TRACE("allocation " + std::to_string(index));
    TinyRun run(config);
    const TemporaryFolder folder;
    const Events events = prepared(run);
    const int64_t live_before = cpu_memory_stats().live_bytes;
    fail_cpu_allocation(index);
    const double loss = go_through(run, events, folder.path());
    failed = cpu_allocations_until_failure() < 0;
    fail_cpu_allocation(INT64_MAX);
    EXPECT_EQ(cpu_memory_stats().live_bytes, live_before) << index;
    EXPECT_TRUE(at::equal(run.weights(), weights)) << index;
    EXPECT_NEAR(loss, expected, 1e-3) << index;
    expect_stored(run.state, folder.path());
    recoveries += run.parts.recovery->num_failures();
  }
  std::printf(
      "overflow, skip, update, evaluation, checkpoint: %lld allocations failed, "
      "%lld microsteps recovered\n",
      static_cast<long long>(allocations - 1), static_cast<long long>(recoveries));
  EXPECT_GT(recoveries, 50);
}

// A run that was fitted to its limit must not end at its first overflow (issue 21).
TEST_F(RecoveryTest, an_overflow_or_a_skip_needs_no_more_memory_than_an_applied_update) {
  auto config = tiny_config("mlp");
  config.model.hidden = {4096};
  config.batch.global_batch = "2";
  config.precision.mode = "fp16";
  config.precision.initial_scale = "1024";
  config.guard.nan_loss = "skip";
  config.guard.nan_gradient = "skip";
  config.memory.limit = "8GiB";
  TinyRun run(config);
  run.steps(2);
  const Events events = events_of([&] { return run.loader->next(); });
  const auto peak_of = [&](const GlobalBatch& batch, Cause expected) {
    trim_cpu_memory();
    restart_cpu_memory_peak();
    EXPECT_EQ(run.step(batch).objectives[0].verdict.cause, expected);
    return cpu_memory_stats().recent_peak_bytes;
  };
  const int64_t applied = peak_of(events.is_applied, Cause::none);
  EXPECT_LE(peak_of(events.is_skipped, Cause::nan_loss), applied);
  run.objective().scaler.set_searched(0x1p60);
  EXPECT_LE(peak_of(events.overflows, Cause::overflow), applied);
}

TEST_F(RecoveryTest, a_hundred_recoveries_leave_no_byte_behind) {
  TinyRun run(gpt_config());
  run.step();
  const int64_t before = cpu_memory_stats().live_bytes;
  for (int i = 0; i < 100; ++i) {
    const GlobalBatch batch = run.loader->next();
    fail_cpu_allocation(20 + i * 3);
    run.step(batch);
  }
  EXPECT_GE(run.parts.recovery->num_failures(), 90);
  EXPECT_EQ(cpu_memory_stats().live_bytes, before);
}

// A limit that one microstep of `samples` samples stays within.
int64_t limit_for(const RunConfig& config, int64_t samples) {
  auto small = config;
  small.batch.microbatch = samples;
  TinyRun run(small);
  run.step();
  trim_cpu_memory();
  restart_cpu_memory_peak();
  run.step();
  const int64_t peak = cpu_memory_stats().recent_peak_bytes;
  return peak + peak / 4;
}

TEST_F(RecoveryTest, the_microbatch_that_fits_is_found_with_at_most_two_failures) {
  auto config = gpt_config();
  config.model.hidden_size = 64;
  config.data.train.fields = {"inputs: int[64] in [0, 49]", "labels: int[64] in [0, 49]"};
  config.batch.global_batch = "64";
  TinyRun whole(config);
  whole.step();
  whole.step();
  for (const int64_t fits : {1, 8}) {
    const int64_t limit = limit_for(config, fits);
    TinyRun run(config);
    set_cpu_memory_limit(limit);
    const StepReport first = run.step(), second = run.step();
    set_cpu_memory_limit(0);
    EXPECT_GE(run.parts.recovery->num_failures(), 1);
    EXPECT_LE(run.parts.recovery->num_failures(), 2) << fits;
    EXPECT_EQ(second.objectives[0].step, 2);
    EXPECT_LE(second.microsteps, 64 / fits + 4) << "more fits than is used";
    EXPECT_LT(relative(run.weights(), whole.weights()), 1e-10);
  }
}

TEST_F(RecoveryTest, below_one_sample_is_an_error_that_says_what_holds_the_memory) {
  auto config = gpt_config();
  TinyRun run(config);
  run.step();
  const at::Tensor before = run.weights();
  const GlobalBatch batch = run.loader->next();
  trim_cpu_memory();
  set_cpu_memory_limit(cpu_memory_charged() + (24 << 10));
  try {
    run.step(batch);
    FAIL() << "a step in 24 KiB";
  } catch (const MemoryError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("out of memory with 1 samples"), std::string::npos) << text;
    EXPECT_NE(text.find("held: "), std::string::npos) << text;
  }
  set_cpu_memory_limit(0);
  EXPECT_TRUE(at::equal(run.weights(), before));
  EXPECT_EQ(run.state.step(), 1);
}

TEST_F(RecoveryTest, no_room_for_the_update_itself_is_the_same_kind_of_error) {
  TinyRun run(gpt_config());
  run.step();
  const GlobalBatch batch = run.loader->next();
  trim_cpu_memory();
  set_cpu_memory_limit(cpu_memory_charged());
  EXPECT_THROW(run.step(batch), MemoryError);
}

TEST_F(RecoveryTest, the_configs_limit_is_the_allocators_and_gone_with_the_next_run) {
  auto config = gpt_config();
  config.memory.limit = "64MiB";
  TinyRun run(config);
  EXPECT_EQ(cpu_memory_limit(), int64_t{64} << 20);
  EXPECT_GT(cpu_memory_reserve(), 0);
  config.memory.limit = "none";
  config.memory.allocator = "cached";
  TinyRun other(config);
  EXPECT_EQ(cpu_memory_limit(), 0);
}

// The window is planned as one microstep. A stop can come after a failure has split it.
TEST_F(RecoveryTest,
       a_stop_between_the_pieces_of_a_split_window_leaves_torchs_generator_as_it_was) {
  const auto config = gpt_config();
  const auto data = open_dataset(config.data.train, "data.train");
  Task task = build_task(config, ModelRegistry(), *data);
  task.phases[0].forward = [forward = task.phases[0].forward](const Batch& batch) {
    at::rand({2});  // as a user's own dropout does
    return forward(batch);
  };
  TinyRun run(config, data.get(), task);
  run.step();
  std::atomic<bool> stop = false;
  run.parts.stop = &stop;
  run.parts.incident = [&](const Incident&) { stop = true; };
  const GlobalBatch batch = run.loader->next();
  const at::Tensor weights = run.weights();
  const at::Tensor before = generator_states(at::kCPU).at("cpu").clone();
  fail_cpu_allocation(40);
  EXPECT_FALSE(update(run.state, run.parts, batch));
  fail_cpu_allocation(INT64_MAX);
  EXPECT_TRUE(stop);
  EXPECT_TRUE(at::equal(generator_states(at::kCPU).at("cpu"), before));
  EXPECT_TRUE(at::equal(run.weights(), weights));
}

TEST_F(RecoveryTest, switched_off_it_ends_the_run_at_the_first_failure) {
  auto config = gpt_config();
  config.memory.recovery = "off";
  TinyRun run(config);
  run.step();
  const GlobalBatch batch = run.loader->next();
  fail_cpu_allocation(30);
  EXPECT_THROW(run.step(batch), MemoryError);
}

TEST_F(RecoveryTest, an_incident_tells_where_and_what_follows) {
  TinyRun run(gpt_config());
  std::vector<Incident> told;
  run.parts.incident = [&](const Incident& incident) { told.push_back(incident); };
  run.step();
  const GlobalBatch batch = run.loader->next();
  fail_cpu_allocation(40);
  run.step(batch);
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].attempt, 2);
  EXPECT_EQ(told[0].microbatch, 8);
  EXPECT_EQ(told[0].next_microbatch, 1);
  EXPECT_EQ(told[0].global_batch, 8);
  EXPECT_NE(told[0].block.find("transformer."), std::string::npos) << told[0].block;
  EXPECT_FALSE(told[0].operation.empty());
  EXPECT_FALSE(told[0].owners.empty());
  EXPECT_EQ(told[0].shapes.size(), 2);
}

TEST_F(RecoveryTest, an_incident_names_the_casts_of_weights_among_the_owners) {
  auto config = gpt_config();
  config.precision.mode = "bf16";
  TinyRun run(config);
  std::vector<Incident> incidents;
  run.parts.incident = [&](const Incident& incident) { incidents.push_back(incident); };
  run.step();
  const GlobalBatch batch = run.loader->next();
  fail_cpu_allocation(120);
  run.step(batch);
  ASSERT_EQ(incidents.size(), 1U);
  const auto& owners = incidents[0].owners;
  const auto casts = std::find_if(owners.begin(), owners.end(),
                                  [](const auto& owner) { return owner.first == "casts"; });
  ASSERT_NE(casts, owners.end());
  EXPECT_GT(casts->second, 0);
}

TEST_F(RecoveryTest, evaluation_takes_fewer_samples_at_once_and_says_the_same) {
  const auto config = gpt_config();
  TinyRun run(config);
  run.parts.plan.evaluate.batch = 32;
  const auto expected = evaluate(run.state, run.parts, *run.dataset);
  fail_cpu_allocation(60);
  const auto got = evaluate(run.state, run.parts, *run.dataset);
  EXPECT_LT(cpu_allocations_until_failure(), 0);
  EXPECT_EQ(got.samples, expected.samples);
  EXPECT_NEAR(got.values.front().second, expected.values.front().second, 1e-12);
}

}  // namespace
}  // namespace tanren::testing
