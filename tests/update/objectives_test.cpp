// Several objectives: on one forward, and in phases of their own that take turns.
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/train/endings.h"
#include "tanren/train/estimate_statistics.h"
#include "tests/support/gan.h"
#include "tests/support/rank_run.h"
#include "tests/support/step_peaks.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/adam.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using MakeTask = std::function<Task()>;

struct GanKind {
  const char* name;
  MakeTask make;
};

std::vector<GanKind> gan_kinds() {
  return {{"one forward", [] { return one_forward_gan(); }},
          {"one forward, every 5", [] { return one_forward_gan(5); }},
          {"two phases, every 5", [] { return two_phase_gan(5); }}};
}

// The line of the error that `work` throws.
template <typename Error>
std::string line_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

GanNet& net_of(const RunState& state) { return dynamic_cast<GanNet&>(*state.task.module); }

Objective& critic_of(RunState& state) { return state.phases.front().objectives.front(); }
Objective& generator_of(RunState& state) { return state.phases.back().objectives.back(); }

// Multiplies a term of a phase by `factor` at each call while `when` is true.
void spoil(Phase& phase, const std::string& term, double factor, const bool& when) {
  phase.spec.forward = [=, &when, inner = phase.spec.forward](const Batch& batch) {
    Terms terms = inner(batch);
    for (Term& own : terms) {
      if (when && own.name == term) own.sum = own.sum * factor;
    }
    return terms;
  };
}

std::map<std::string, at::Tensor> copies_of(const RunState& state) {
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, tensor] : state.model_tensors()) copies[name] = tensor.clone();
  for (const auto& [name, tensor] : state.optimizer_state().tensors) {
    copies["optimizer " + name] = tensor.clone();
  }
  return copies;
}

void expect_unchanged(const RunState& state, const std::map<std::string, at::Tensor>& before,
                      const std::string& only = "") {
  for (const auto& [name, tensor] : copies_of(state)) {
    if (name.find(only) == std::string::npos) continue;
    EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
  }
}

// --- against a loop by hand

// The same GAN, trained by libtorch's own optimizers. If `is_shared`, both gradients are computed
// before either is applied.
at::Tensor by_hand(const RunConfig& config, int updates, int every, bool is_shared) {
  TinyRun run(config, nullptr, one_forward_gan());  // for its weights and batches
  auto& net = net_of(run.state);
  std::vector<at::Tensor> critic, generator;
  for (const auto& item : net.named_parameters()) {
    (item.key().starts_with("critic") ? critic : generator).push_back(item.value());
  }
  torch::optim::Adam critic_adam(critic, torch::optim::AdamOptions(config.optimizer.learning_rate));
  torch::optim::Adam generator_adam(generator,
                                    torch::optim::AdamOptions(config.optimizer.learning_rate));
  const auto set = [](const std::vector<at::Tensor>& parameters, const at::Tensor& loss) {
    const auto gradients = torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/true);
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor(parameters[i]).mutable_grad() = gradients[i];
    }
  };
  for (int i = 0; i < updates; ++i) {
    const Batch batch = run.loader->next().local;
    const bool in_turn = (i + 1) % every == 0;
    const at::Tensor made = net.criticise(net.generate(batch));
    set(critic, at::relu(1 - net.criticise(net.real(batch))).mean() + at::relu(1 + made).mean());
    if (is_shared && in_turn) set(generator, -made.mean());
    critic_adam.step();
    if (!in_turn) continue;
    if (!is_shared) set(generator, -net.criticise(net.generate(batch)).mean());
    generator_adam.step();
  }
  return run.weights();
}

TEST(Objectives, equal_a_loop_by_hand) {
  const auto config = gan_config();
  for (const int every : {1, 5}) {
    TinyRun together(config, nullptr, one_forward_gan(every));
    together.steps(10);
    EXPECT_LT(relative(together.weights(), by_hand(config, 10, every, true)), 1e-12) << every;
    TinyRun apart(config, nullptr, two_phase_gan(every));
    apart.steps(10);
    EXPECT_LT(relative(apart.weights(), by_hand(config, 10, every, false)), 1e-12) << every;
    EXPECT_GT(relative(apart.weights(), together.weights()), 1e-6) << "the tasks do not differ";
    EXPECT_EQ(critic_of(apart.state).step, 10);
    EXPECT_EQ(generator_of(apart.state).step, 10 / every);
  }
}

TEST(Objectives, equal_one_rank_over_ranks_accumulation_and_shared_state) {
  for (const auto& [name, make] : gan_kinds()) {
    TinyRun whole(gan_config(), nullptr, make());
    whole.steps(10);
    const at::Tensor expected = whole.weights();
    for (const int64_t microbatch : {12, 4, 2}) {
      for (const auto& [engine, ranks, zero] : {std::tuple{"threads", 1, 0},
                                                {"threads", 2, 0},
                                                {"threads", 3, 1},
                                                {"gloo", 2, 1},
                                                {"gloo", 3, 0}}) {
        auto config = gan_config();
        config.batch.microbatch = microbatch;
        config.parallel.zero = zero;
        config.parallel.first_bucket_mb = config.parallel.bucket_mb = 1.0 / 1024;
        const auto data = open_dataset(config.data.train, "data.train");
        std::vector<at::Tensor> got(static_cast<size_t>(ranks));
        on_engine(engine, ranks, [&](Communicator& comm) {
          RankRun run(config, *data, comm, make);
          for (int i = 0; i < 10; ++i) run.step();
          got[static_cast<size_t>(comm.rank())] = run.weights();
        });
        const std::string what = fmt::format("{}: {} × {}, zero {}, microbatch {}", name, engine,
                                             ranks, zero, microbatch);
        EXPECT_LT(relative(got[0], expected), 1e-10) << what;
        for (const auto& weights : got) EXPECT_TRUE(at::equal(weights, got[0])) << what;
      }
    }
  }
}

// --- turns

TEST(Objectives, out_of_turn_have_no_backward_no_bucket_and_no_report) {
  auto config = gan_config();
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 1.0 / 1024;
  const auto data = open_dataset(config.data.train, "data.train");
  on_ranks(2, [&](Communicator& comm) {
    RankRun run(config, *data, comm, [] { return one_forward_gan(3); });
    std::vector<int64_t> sent;
    for (int i = 0; i < 6; ++i) {
      const StepReport report = run.step();
      EXPECT_TRUE(report.several);
      EXPECT_EQ(report.objectives.size(), (i + 1) % 3 == 0 ? 2u : 1u) << i;
      sent.push_back(run.state.phases.front().reducer->num_reductions());
    }
    const int64_t critic = sent[1] - sent[0], both = sent[2] - sent[1];
    EXPECT_GT(critic, 0);
    EXPECT_GT(both, critic);
    EXPECT_EQ(sent[3] - sent[2], critic);
    EXPECT_EQ(sent[5] - sent[4], both);
    EXPECT_EQ(generator_of(run.state).step, 2);
  });
}

TEST(Objectives, of_a_phase_that_is_out_of_turn_run_no_forward) {
  TinyRun run(gan_config(), nullptr, two_phase_gan(4));
  int forwards = 0;
  auto& forward = run.state.phases.back().spec.forward;
  forward = [&, inner = forward](const Batch& batch) {
    ++forwards;
    return inner(batch);
  };
  const int64_t reads = num_device_reads();
  run.steps(3);
  EXPECT_EQ(forwards, 0);
  EXPECT_EQ(num_device_reads() - reads, 3);
  run.steps(1);
  EXPECT_EQ(forwards, 1);
  EXPECT_EQ(num_device_reads() - reads, 5) << "one read for each phase in turn";
}

TEST(Objectives, draw_for_each_phase) {
  auto config = gan_config();
  TinyRun run(config, nullptr, two_phase_gan());
  EXPECT_EQ(run.state.seed_of(run.state.phases[0]), run.state.seed);
  EXPECT_NE(run.state.seed_of(run.state.phases[1]), run.state.seed);
}

// --- judging

TEST(Objectives, are_all_undone_if_one_halts) {
  for (const bool second_halts : {true, false}) {
    auto config = gan_config();
    config.batch.microbatch = 4;
    TinyRun run(config, nullptr, one_forward_gan(1, /*with_norm=*/true));
    bool is_spoilt = false;
    spoil(run.state.phases.front(), second_halts ? "score" : "real", kInfinity, is_spoilt);
    run.steps(2);
    const auto before = copies_of(run.state);
    const State guard = critic_of(run.state).guard.state(),
                other = generator_of(run.state).guard.state();
    is_spoilt = true;
    const StepReport report = run.step();
    ASSERT_EQ(report.objectives.size(), 2u);
    const auto& halted = report.objectives[second_halts ? 1 : 0];
    const auto& beside = report.objectives[second_halts ? 0 : 1];
    EXPECT_EQ(halted.verdict.action, Action::halt);
    EXPECT_EQ(halted.verdict.cause, Cause::nan_loss);
    EXPECT_EQ(beside.verdict.action, Action::skip);
    EXPECT_EQ(beside.verdict.cause, Cause::halt_beside);
    expect_unchanged(run.state, before);
    EXPECT_EQ(critic_of(run.state).step, 2);
    EXPECT_EQ(generator_of(run.state).step, 2);
    EXPECT_EQ(run.state.attempt, 3);
    EXPECT_EQ((second_halts ? critic_of(run.state).guard.state().values == guard.values
                            : generator_of(run.state).guard.state().values == other.values),
              true);
    EXPECT_EQ(report.culprit.rfind(halted.name + ": microbatch 0", 0), 0u) << report.culprit;
    const std::string line =
        line_of<RunError>([&] { halt(report, halted, run.parts.plan, "", ""); });
    EXPECT_NE(line.find("objective " + halted.name + ": non-finite loss"), std::string::npos)
        << line;
    EXPECT_NE(line.find("; nothing was applied;"), std::string::npos) << line;
  }
}

TEST(Objectives, of_earlier_phases_stay_applied_if_a_later_one_halts) {
  TinyRun run(gan_config(), nullptr, two_phase_gan(1, /*with_norm=*/true));
  bool is_spoilt = false;
  spoil(run.state.phases.back(), "score", kInfinity, is_spoilt);
  run.steps(1);
  const auto before = copies_of(run.state);
  is_spoilt = true;
  const StepReport report = run.step();
  EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
  EXPECT_EQ(report.objectives[1].verdict.action, Action::halt);
  EXPECT_EQ(run.state.attempt, 2);
  EXPECT_EQ(critic_of(run.state).step, 2);
  EXPECT_EQ(generator_of(run.state).step, 1);
  expect_unchanged(run.state, before, "generator.");
  const std::string line =
      line_of<RunError>([&] { halt(report, report.objectives[1], run.parts.plan, "", ""); });
  EXPECT_NE(line.find("; the update of critic was applied before it, and nothing else;"),
            std::string::npos)
      << line;
}

// The generator's phase moves the critic's running statistics, too.
TEST(Objectives, that_are_skipped_leave_no_trace_in_layers_of_others) {
  auto config = gan_config();
  config.guard.nan_loss = "skip";
  TinyRun skipped(config, nullptr, two_phase_gan(1, /*with_norm=*/true));
  TinyRun absent(config, nullptr, two_phase_gan(3, /*with_norm=*/true));  // not in turn before 3
  bool is_spoilt = true;
  spoil(skipped.state.phases.back(), "score", kInfinity, is_spoilt);
  const auto reports = skipped.steps(2);
  EXPECT_EQ(reports[1].objectives[1].verdict.action, Action::skip);
  absent.steps(2);
  expect_unchanged(skipped.state, copies_of(absent.state));
}

TEST(Objectives, that_overflow_are_skipped_alone_with_a_scale_of_their_own) {
  for (const bool is_one_forward : {true, false}) {
    auto config = gan_config("fp16");
    config.precision.initial_scale = "1024";
    TinyRun run(config, nullptr, is_one_forward ? one_forward_gan() : two_phase_gan());
    run.steps(1);
    generator_of(run.state).scaler.set_searched(0x1p60);
    const auto before = copies_of(run.state);
    const StepReport report = run.step();
    EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
    EXPECT_EQ(report.objectives[1].verdict.cause, Cause::overflow);
    EXPECT_EQ(critic_of(run.state).scaler.scale(), 1024);
    EXPECT_EQ(generator_of(run.state).scaler.scale(), 0x1p59);
    EXPECT_EQ(critic_of(run.state).step, 2);
    EXPECT_EQ(generator_of(run.state).step, 1);
    expect_unchanged(run.state, before, "generator.");
    EXPECT_FALSE(at::equal(net_of(run.state).score->weight, before.at("critic_score.weight")));
  }
}

TEST(Objectives, are_searched_a_scale_each) {
  auto config = gan_config("fp16");
  config.precision.initial_scale = "auto";
  TinyRun run(config, nullptr, one_forward_gan());
  bool always = true;
  spoil(run.state.phases.front(), "score", 0x1p10, always);
  run.step();
  const double critic = critic_of(run.state).scaler.scale();
  const double generator = generator_of(run.state).scaler.scale();
  EXPECT_GT(critic, 1);
  EXPECT_GT(generator, 1);
  EXPECT_LT(generator * 16, critic) << "one scale was searched for both";
  // The same scales as each finds by itself.
  TinyRun alone(config, nullptr, two_phase_gan());
  alone.step();
  EXPECT_EQ(critic_of(alone.state).scaler.scale(), critic);
}

// The generator is first in turn at the third batch, and is searched then.
TEST(Objectives, are_searched_in_their_first_turn) {
  auto config = gan_config("fp16");
  config.precision.initial_scale = "auto";
  TinyRun run(config, nullptr, one_forward_gan(3));
  run.steps(2);
  EXPECT_FALSE(critic_of(run.state).scaler.wants_search());
  EXPECT_TRUE(generator_of(run.state).scaler.wants_search());
  const double critic = critic_of(run.state).scaler.scale();
  run.steps(1);
  EXPECT_FALSE(generator_of(run.state).scaler.wants_search());
  EXPECT_EQ(critic_of(run.state).scaler.scale(), critic);
}

TEST(Objectives, are_blamed_for_their_own_terms_alone) {
  auto config = gan_config();
  config.guard.nan_loss = config.guard.nan_gradient = "skip";
  config.batch.microbatch = 4;
  TinyRun run(config, nullptr, one_forward_gan());
  int forwards = 0;
  auto& forward = run.state.phases.front().spec.forward;
  forward = [&, inner = forward](const Batch& batch) {
    Terms terms = inner(batch);
    const int microbatch = forwards++;
    if (microbatch == 0) terms[2].sum = terms[2].sum * kInfinity;  // the generator's
    if (microbatch == 1) terms[0].sum = terms[0].sum * kInfinity;  // the critic's
    return terms;
  };
  const StepReport report = run.step();
  EXPECT_NE(report.culprit.find("critic: microbatch 1 "), std::string::npos) << report.culprit;
  EXPECT_NE(report.culprit.find("; generator: microbatch 0 "), std::string::npos) << report.culprit;
}

// --- ends

TEST(Objectives, of_a_later_phase_are_finished_after_a_stop_request) {
  std::atomic<bool> stop = false;
  auto config = gan_config();
  config.batch.microbatch = 4;
  for (const size_t stopping : {size_t{0}, size_t{1}}) {
    TinyRun run(config, nullptr, two_phase_gan());
    run.parts.stop = &stop;
    auto& forward = run.state.phases[stopping].spec.forward;
    forward = [&, inner = forward](const Batch& batch) {
      stop = true;
      return inner(batch);
    };
    stop = false;
    const auto before = copies_of(run.state);
    const auto report = update(run.state, run.parts, run.loader->next());
    EXPECT_EQ(report.has_value(), stopping == 1);
    EXPECT_EQ(run.state.attempt, stopping == 1 ? 1 : 0);
    EXPECT_EQ(generator_of(run.state).step, stopping == 1 ? 1 : 0);
    if (stopping == 0) expect_unchanged(run.state, before);
  }
}

TEST(Objectives, that_are_applied_are_not_applied_again_after_an_error_in_a_later_phase) {
  TinyRun run(gan_config(), nullptr, two_phase_gan(1, /*with_norm=*/true));
  run.steps(1);
  bool fails = true;
  auto& forward = run.state.phases[1].spec.forward;
  forward = [&, inner = forward](const Batch& batch) {
    const Terms terms = inner(batch);
    if (fails) throw std::runtime_error("a fault of the model");
    return terms;
  };
  const GlobalBatch batch = run.loader->next();
  const std::string error = error_of<Error>([&] { update(run.state, run.parts, batch); });
  TANREN_EXPECT_CONTAINS(error, "step 2, microbatch 0");
  EXPECT_FALSE(run.state.applying);
  EXPECT_EQ(run.state.phases_done, 1u);
  EXPECT_EQ(critic_of(run.state).step, 2);
  EXPECT_EQ(generator_of(run.state).step, 1);
  EXPECT_EQ(run.state.attempt, 2);
  EXPECT_EQ(run.state.consumed, batch.consumed);
  fails = false;
  run.steps(1);
  TinyRun absent(gan_config(), nullptr, two_phase_gan(1, /*with_norm=*/true));
  absent.steps(1);
  generator_of(absent.state).spec.every = 3;  // out of turn in the update that failed
  absent.steps(2);
  EXPECT_TRUE(at::equal(run.weights(), absent.weights()));
}

TEST(Objectives, resume_bitwise_at_every_attempt) {
  for (const auto& [name, make] : gan_kinds()) {
    auto config = gan_config();
    config.average.kind = "ema";
    TinyRun whole(config, nullptr, make());
    TinyRun current(config, nullptr, make());
    for (int attempt = 0; attempt < 10; ++attempt) {
      whole.step();
      TinyRun resumed(config, nullptr, make());
      resumed.state.load(resumed.parts.device, {current.state.model_tensors(), {}},
                         current.state.optimizer_state(),
                         current.state.run_state(current.parts.device),
                         current.state.average_state());
      resumed.use_loader(0, 1);
      resumed.step();
      EXPECT_TRUE(at::equal(resumed.weights(), whole.weights())) << name << " " << attempt;
      current.step();
    }
    EXPECT_TRUE(at::equal(current.weights(), whole.weights())) << name;
  }
}

// --- memory

class ObjectivesMemory : public StepPeaksTest {};

TEST_F(ObjectivesMemory, that_runs_out_in_any_allocation_is_recovered) {
  install_cpu_allocator();
  for (const auto& [name, make] : gan_kinds()) {
    auto config = gan_config();
    config.memory.limit = "8GiB";
    const auto at_the_last_batch = [&](TinyRun& run) {
      run.steps(4);
      return run.loader->next();
    };
    TinyRun undisturbed(config, nullptr, make());
    undisturbed.step(at_the_last_batch(undisturbed));
    const at::Tensor expected = undisturbed.weights();
    double worst = 0;
    int64_t recoveries = 0;
    bool failed = true;
    for (int64_t index = 0; failed; ++index) {
      TinyRun run(config, nullptr, make());
      const GlobalBatch batch = at_the_last_batch(run);
      const int64_t live = cpu_memory_stats().live_bytes;
      fail_cpu_allocation(index);
      const StepReport report = run.step(batch);
      failed = cpu_allocations_until_failure() < 0;
      fail_cpu_allocation(INT64_MAX);
      EXPECT_EQ(report.objectives.size(), 2u);
      EXPECT_EQ(cpu_memory_stats().live_bytes, live) << index;
      recoveries += run.parts.recovery->num_failures();
      worst = std::max(worst, relative(run.weights(), expected));
    }
    EXPECT_GT(recoveries, 30) << name;
    EXPECT_LT(worst, 1e-10) << name;
  }
}

TEST_F(ObjectivesMemory, is_predicted_for_the_step_with_all_of_them) {
  for (const auto& [name, make] : gan_kinds()) {
    auto config = gan_config("fp32");
    config.data.train.samples = 4096;
    config.batch.global_batch = "4096";
    const StepPeaks peaks = step_peaks(config, make, /*step=*/5);
    EXPECT_LT(std::abs(peaks.error()), 0.03)
        << name << ": predicted " << peaks.predicted << ", measured " << peaks.measured;
  }
}

// --- what once used only the first phase or objective

TEST(Objectives, have_their_averages_statistics_measured_in_all_phases) {
  auto config = gan_config();
  config.average.kind = "ema";
  config.average.buffers = "estimate";
  TinyRun run(config, nullptr, two_phase_gan(1, /*with_norm=*/true));
  for (auto& phase : run.state.phases) {  // each phase passes through a layer of its own
    phase.spec.forward = [&run,
                          is_first = phase.spec.name == "critic"](const Batch& batch) -> Terms {
      auto& net = net_of(run.state);
      if (is_first) {
        const at::Tensor scores = net.criticise(net.real(batch));
        return {sum_of("real", scores), sum_of("fake", scores * 0.5)};
      }
      return {sum_of("score", net.generate(batch).sum(1))};
    };
  }
  run.steps(3);
  const State before = run.state.average_state();
  std::map<std::string, at::Tensor> stale;
  for (const auto& [name, tensor] : before.tensors) stale[name] = tensor.clone();
  ASSERT_TRUE(estimate_statistics(run.state, run.parts, *run.dataset));
  const State after = run.state.average_state();
  for (const char* name : {"critic_norm.running_mean", "generator_norm.running_mean"}) {
    EXPECT_FALSE(at::equal(after.tensors.at(name), stale.at(name))) << name;
  }
}

// The average of an objective in turn at every fifth batch begins later. Until then its layers hold
// the statistics that training measures, and an evaluation must not replace them.
TEST(Objectives, keep_their_own_statistics_until_their_average_has_begun) {
  auto config = gan_config();
  config.average.kind = "ema";
  config.average.buffers = "estimate";
  TinyRun run(config, nullptr, two_phase_gan(5, /*with_norm=*/true));
  run.step();
  const at::Tensor statistics = net_of(run.state).norm->running_mean;
  const at::Tensor before = statistics.clone();
  ASSERT_TRUE(estimate_statistics(run.state, run.parts, *run.dataset));
  EXPECT_TRUE(at::equal(statistics, before));
}

// SWA begins at a share of the run, no matter how often an objective is in turn.
TEST(Objectives, begin_their_averages_at_the_same_batch) {
  auto config = gan_config();
  config.average.kind = "swa";
  config.average.start = "10";
  TinyRun run(config, nullptr, two_phase_gan(5));
  run.steps(10);
  EXPECT_EQ(critic_of(run.state).average->num_updates(), 1);
  EXPECT_EQ(generator_of(run.state).average->num_updates(), 1);
}

TEST(Objectives, have_a_layers_statistics_measured_over_all_phases_that_pass_through_it) {
  auto config = gan_config();
  config.average.kind = "ema";
  config.average.buffers = "estimate";
  TinyRun run(config, nullptr, two_phase_gan(1, /*with_norm=*/true));
  run.step();
  for (auto& phase : run.state.phases) {  // the first sees zeros, the second ones
    phase.spec.forward = [&run,
                          is_first = phase.spec.name == "critic"](const Batch& batch) -> Terms {
      auto& net = net_of(run.state);
      const at::Tensor seen = at::full_like(net.real(batch), is_first ? 0.0 : 1.0);
      return {sum_of("score", net.criticise(seen))};
    };
  }
  ASSERT_TRUE(estimate_statistics(run.state, run.parts, *run.dataset));
  const TensorMap average = run.state.average_state().tensors;
  const at::Tensor of_zeros = average.at("critic_hidden.bias");
  const at::Tensor of_ones = of_zeros + average.at("critic_hidden.weight").sum(1);
  EXPECT_LT(relative(average.at("critic_norm.running_mean"), (of_zeros + of_ones) / 2), 1e-10);
}

// --- bad input

TEST(Objectives, that_are_never_in_turn_or_share_a_name_are_refused) {
  const auto line = [](const std::function<void(Task&)>& change) {
    return line_of<ConfigError>([&] {
      Task task = two_phase_gan();
      change(task);
      TinyRun(gan_config(), nullptr, task);
    });
  };
  EXPECT_NE(line([](Task& task) {
              task.phases[1].objectives[0].every = 0;
            }).find("objective generator of its task has every = 0"),
            std::string::npos);
  EXPECT_NE(line([](Task& task) {
              task.phases[0].objectives[0].every = 2;
            }).find("objective critic is the first of its task and has every = 2"),
            std::string::npos);
  EXPECT_NE(line([](Task& task) {
              task.phases[1].objectives[0].name = "critic";
            }).find("two objectives of its task are named critic"),
            std::string::npos);
  EXPECT_NE(line([](Task& task) {
              task.phases[0].objectives[0].terms = {{"real", 1}, {"real", 1}};
            }).find("objective critic of its task lists term real twice"),
            std::string::npos);
}

TEST(Objectives, that_want_a_term_which_no_forward_returns_are_refused) {
  Task task = two_phase_gan();
  task.phases[1].objectives[0].terms = {{"scores", -1}};
  TinyRun run(gan_config(), nullptr, task);
  EXPECT_NE(line_of<ConfigError>([&] {
              run.step();
            }).find("objective generator wants term \"scores\"; forward returned score"),
            std::string::npos);
}

}  // namespace
}  // namespace tanren::testing
