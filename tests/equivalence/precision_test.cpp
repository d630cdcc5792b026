// Loss scaling, skips and non-finite values: an update that is not applied leaves no trace.
#include "tests/support/tiny_run.h"

#include "tanren/base/text.h"
#include "tanren/optimizer/schedule.h"

#include <gtest/gtest.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cmath>
#include <limits>

namespace tanren::testing {
namespace {

RunConfig fp16_config() {
  auto config = tiny_config("convnet");
  config.precision.mode = "fp16";
  config.schedule.kind = "linear";
  config.schedule.warmup_steps = 5;
  return config;
}

// A batch of the run's own data with one input replaced by `value`, in sample `row`.
GlobalBatch poisoned(TinyRun& run, double value, int64_t row) {
  GlobalBatch batch = run.loader->next();
  batch.local["inputs"][row].fill_(value);
  return batch;
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Overflow, backs_off_and_leaves_weights_state_buffers_counters_and_schedule_as_they_were) {
  auto config = fp16_config();
  config.model.norm = "batch";                       // has buffers that a forward changes
  config.precision.initial_scale = "1099511627776";  // 2^40
  TinyRun run(config);
  const auto weights = run.weights();
  std::vector<at::Tensor> buffers;
  for (const auto& buffer : run.state.task.module->buffers()) buffers.push_back(buffer.clone());
  const auto report = run.step();
  const auto& told = report.objectives[0];
  EXPECT_EQ(told.verdict.action, Action::skip);
  EXPECT_EQ(told.verdict.cause, Cause::overflow);
  EXPECT_TRUE(std::isfinite(told.loss));
  EXPECT_EQ(told.loss_scale, 0x1p40);
  EXPECT_EQ(run.objective().scaler.scale(), 0x1p39);
  EXPECT_TRUE(at::equal(run.weights(), weights));
  const auto after = run.state.task.module->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(at::equal(after[i], buffers[i])) << i;
  EXPECT_EQ(report.attempt, 1);
  EXPECT_EQ(report.step, 0);
  // Skips until the scale fits. Then training continues, and the schedule starts with its first
  // value.
  StepReport next;
  int skips = 1;
  while ((next = run.step()).objectives[0].verdict.action == Action::skip) ++skips;
  EXPECT_GT(skips, 5);
  EXPECT_EQ(next.step, 1);
  EXPECT_EQ(next.attempt, skips + 1);
  const ObjectivePlan& plan = run.objective().plan;
  EXPECT_EQ(next.objectives[0].learning_rate,
            learning_rate(plan.schedule, plan.optimizer.learning_rate, 0, plan.total_steps));
  EXPECT_EQ(run.step().objectives[0].learning_rate,
            learning_rate(plan.schedule, plan.optimizer.learning_rate, 1, plan.total_steps));
}

TEST(Overflow, skipped_attempts_do_not_change_what_the_applied_ones_learn) {
  // A run whose first attempts overflow equals a run that starts with a fitting scale and without
  // those batches.
  auto config = fp16_config();
  config.precision.initial_scale = "1099511627776";
  TinyRun rough(config);
  int skips = 0;
  while (rough.step().objectives[0].verdict.action == Action::skip) ++skips;
  config.precision.initial_scale = to_text(std::ldexp(1.0, 40 - skips));
  TinyRun smooth(config);
  for (int i = 0; i < skips; ++i) smooth.loader->next();
  smooth.state.attempt = skips;
  smooth.step();
  EXPECT_TRUE(at::equal(rough.weights(), smooth.weights()));
}

TEST(Scale, is_the_same_over_all_microsteps_of_a_window_and_one_bad_one_skips_all_of_it) {
  auto config = tiny_config("mlp");
  config.precision.mode = "fp16";
  config.batch.microbatch = 6;
  TinyRun run(config);
  const auto weights = run.weights();
  const auto report = run.step(poisoned(run, 3e3, 20));  // one microbatch of five overflows in fp16
  EXPECT_EQ(report.microsteps, 5);
  EXPECT_EQ(report.objectives[0].verdict.cause, Cause::overflow);
  EXPECT_EQ(report.objectives[0].loss_scale, 65536);
  EXPECT_EQ(run.objective().scaler.scale(), 32768);  // halved once, not once per microstep
  EXPECT_TRUE(at::equal(run.weights(), weights));
}

TEST(Scale, by_a_power_of_two_is_bitwise_nothing_in_fp32_fp64_and_bf16) {
  for (const char* mode : {"fp32", "fp64", "bf16"}) {
    auto config = tiny_config("mlp");
    config.precision.mode = mode;
    TinyRun plain(config);
    config.precision.loss_scale = "dynamic";
    TinyRun scaled(config);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(plain.step().objectives[0].grad_norm, scaled.step().objectives[0].grad_norm)
          << mode;
    }
    EXPECT_TRUE(at::equal(plain.weights(), scaled.weights())) << mode;
  }
}

TEST(Scale, found_on_the_first_window_trains_from_the_first_attempt_and_leaves_no_trace) {
  auto config = fp16_config();
  config.precision.initial_scale = "auto";
  TinyRun run(config);
  const auto report = run.step();
  EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
  EXPECT_EQ(report.attempt, 1);
  const double scale = report.objectives[0].loss_scale;
  EXPECT_GE(scale, 256);
  EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
  config.precision.initial_scale = to_text(scale);
  TinyRun told(config);
  told.step();
  EXPECT_TRUE(at::equal(run.weights(), told.weights()));
}

TEST(Clipping, sees_unscaled_gradients_at_any_scale) {
  auto config = tiny_config("mlp");
  config.clip.norm = 0.05;
  config.optimizer.kind = "sgd";
  TinyRun plain(config);
  config.precision.mode = "fp32";
  config.precision.loss_scale = "static";
  TinyRun scaled(config);
  const auto report = scaled.step();
  EXPECT_NEAR(report.objectives[0].grad_norm, plain.step().objectives[0].grad_norm, 1e-5);
  EXPECT_GT(report.objectives[0].grad_norm, 0.05);
  EXPECT_NEAR(scaled.gradients().norm().item<double>(), 0.05, 1e-5);
  EXPECT_LT(relative(scaled.weights().to(at::kDouble), plain.weights()), 1e-5);
}

TEST(NonFinite, loss_halts_by_default_and_names_its_microbatch_and_a_parameter) {
  for (const char* mode : {"fp32", "bf16", "fp16"}) {
    auto config = tiny_config("mlp");
    config.precision.mode = mode;
    config.batch.microbatch = 10;
    TinyRun run(config);
    const auto weights = run.weights();
    const auto report = run.step(poisoned(run, kNan, 15));
    EXPECT_EQ(report.objectives[0].verdict.action, Action::halt) << mode;
    EXPECT_EQ(report.objectives[0].verdict.cause, Cause::nan_loss) << mode;
    EXPECT_NE(report.culprit.find("microbatch 1 "), std::string::npos) << report.culprit;
    EXPECT_NE(report.culprit.find("weight"), std::string::npos) << report.culprit;
    EXPECT_TRUE(at::equal(run.weights(), weights)) << mode;
  }
}

TEST(NonFinite, loss_may_be_skipped_and_the_next_good_batch_is_applied) {
  auto config = tiny_config("mlp");
  config.guard.nan_loss = "skip";
  TinyRun run(config);
  EXPECT_EQ(run.step(poisoned(run, kInf, 0)).objectives[0].verdict.action, Action::skip);
  EXPECT_EQ(run.step().objectives[0].verdict.action, Action::apply);
}

TEST(NonFinite, gradient_with_a_finite_loss_is_caught_in_bf16_and_fp32_before_the_optimizer) {
  struct Root : torch::nn::Module {
    Root() { weight = register_parameter("weight", at::zeros({1})); }
    at::Tensor weight;
  };
  for (const char* mode : {"fp32", "bf16"}) {
    auto net = std::make_shared<Root>();
    Task task;
    task.module = net;
    PhaseSpec phase;  // d sqrt(w) / dw is infinite at 0
    phase.forward = [net](const Batch& batch) -> Terms {
      return {{"root", net->weight.sqrt().sum() * static_cast<double>(batch.size())}};
    };
    task.phases = {phase};
    auto config = tiny_config("mlp");
    config.precision.mode = mode;
    TinyRun run(config, nullptr, task);
    const auto report = run.step();
    EXPECT_EQ(report.objectives[0].verdict.cause, Cause::nan_gradient);
    EXPECT_EQ(report.objectives[0].verdict.action, Action::halt);
    EXPECT_EQ(net->weight.item<float>(), 0.0f);
  }
}

TEST(Flush, share_is_reported_on_request_without_another_read) {
  auto config = fp16_config();
  config.precision.report_flush = true;
  TinyRun run(config);
  const auto reads = num_device_reads();
  const auto report = run.step();
  EXPECT_EQ(num_device_reads() - reads, 1);
  ASSERT_TRUE(report.objectives[0].flush_share.has_value());
  EXPECT_GE(*report.objectives[0].flush_share, 0.0);
  EXPECT_EQ(*report.objectives[0].overflow_share, 0.0);
}

// Counts operations that would block the host on an accelerator: scalar reads and copies to the
// CPU.
class HostReads {
 public:
  HostReads() {
    count() = 0;
    inside_fused() = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
              const std::string name = call.name();
              // On the CPU the fused kernel reads its own step counter; on CUDA it does not.
              if (name.rfind("aten::_fused_", 0) == 0) ++inside_fused();
              if (inside_fused() == 0 && (name == "aten::_local_scalar_dense" ||
                                          name == "aten::nonzero" || name == "aten::equal")) {
                ++count();
              }
              return nullptr;
            },
            [](const at::RecordFunction& call, at::ObserverContext*) {
              if (std::string(call.name()).rfind("aten::_fused_", 0) == 0) --inside_fused();
            })
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~HostReads() { at::removeCallback(handle_); }
  static std::atomic<int>& count() {
    static std::atomic<int> value{0};
    return value;
  }
  static std::atomic<int>& inside_fused() {
    static std::atomic<int> value{0};
    return value;
  }

 private:
  at::CallbackHandle handle_;
};

TEST(DeviceReads, the_counter_sees_an_item_call) {
  const HostReads reads;
  at::ones({}).item<float>();
  EXPECT_EQ(HostReads::count(), 1);
}

TEST(DeviceReads, are_one_a_step_and_none_in_a_microstep) {
  for (const int64_t microbatch : {0, 3}) {
    auto config = fp16_config();
    config.batch.microbatch = microbatch;
    config.clip.norm = 1;
    TinyRun run(config);
    run.step();
    const auto batch = run.loader->next();
    const auto before = num_device_reads();
    const HostReads reads;
    const auto report = run.step(batch);
    EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
    EXPECT_EQ(HostReads::count(), 0) << "reads past read_to_host";
    EXPECT_EQ(num_device_reads() - before, 1);
  }
}

}  // namespace
}  // namespace tanren::testing
