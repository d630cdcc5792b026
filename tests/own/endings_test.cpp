// An error in a user's program loses no applied update, and a resumed run equals one without the
// error. Issue 22.
#include "tests/own/fragile.h"

#include "tanren/base/error.h"
#include "tanren/metrics/event_reader_test_util.h"
#include "tanren/metrics/queued_sink.h"
#include "tanren/run/run.h"
#include "tests/support/run_log.h"

#include <chrono>
#include <thread>

namespace tanren::testing {
namespace {

TEST(OwnErrors, in_the_last_evaluation_cost_that_evaluation_alone) {
  OwnProgram whole, plain, cut;
  whole.evaluates = cut.evaluates = true;
  train(whole);
  train(plain);
  // Fails in the third batch of the last evaluation, after predict has drawn and counted.
  cut.factory = before_predict(failing_from(4), fragile_task);  // call 1 is the rehearsal
  EXPECT_EQ(cut.go("run", {"--set", "evaluate.batch=4"}), 1);
  TANREN_EXPECT_CONTAINS(cut.err, "[train] evaluation (4 samples");
  TANREN_EXPECT_CONTAINS(cut.err, "it failed");
  TANREN_EXPECT_CONTAINS(cut.err, "; last checkpoint: ");
  TANREN_EXPECT_CONTAINS(cut.err, "step-4");
  cut.expect_one_line();
  expect_same_state(plain, cut, 4);
  train(cut);  // without the error
  expect_same_state(whole, cut, 4);
  expect_same_log(whole.run(), cut.run());
  EXPECT_EQ(cut.attempts(), 4);
}

// Issue 22: the generator state in the checkpoint included the random draws of the statistics
// estimate and of the first evaluated batches.
TEST(OwnErrors, and_stops_in_an_evaluation_on_the_way_leave_no_trace_of_it) {
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"--set", "checkpoint.every=2"},
      {"--set", "checkpoint.best=1"},
      {"--set", "early_stop.patience=3"},
      {"--set", "schedule.kind=reduce_on_plateau", "--set", "schedule.patience=1"},
      {"--set", "metrics.tensorboard=true"}};
  for (const auto& kind : kinds) {
    const std::string which = kind.empty() ? "" : kind.back();
    OwnProgram whole;
    whole.evaluates = true;
    whole.factory = fragile_task;
    ASSERT_EQ(whole.go("run", averaging(kind)), 0) << which << whole.err;
    for (const bool stops : {false, true}) {
      OwnProgram cut;
      cut.evaluates = true;
      cut.factory = before_predict(stops ? stopping_at(4) : failing_from(4), fragile_task);
      EXPECT_EQ(cut.go("run", averaging(kind)), stops ? 130 : 1) << which << cut.err;
      if (!stops) {
        TANREN_EXPECT_CONTAINS(cut.err, "step-2");
      }
      ASSERT_TRUE(cut.has_checkpoint(2)) << which;
      EXPECT_EQ(cut.attempts(), 2) << which;
      cut.factory = fragile_task;
      EXPECT_EQ(cut.go("run", averaging(kind)), 0) << which << cut.err;
      expect_same_state(whole, cut, 4);
      expect_same_log(whole.run(), cut.run());
      if (!which.ends_with("tensorboard=true")) continue;
      const std::string curve = "evaluate/loss";
      EXPECT_EQ(read_curves(whole.run() / "tensorboard").at(curve),
                read_curves(cut.run() / "tensorboard").at(curve));
    }
  }
}

// Fails in the second batch of the estimate after step 2; the two steps called forward four times.
TEST(OwnErrors, in_an_estimate_of_statistics_leave_no_trace_of_it_either) {
  OwnProgram whole, cut;
  whole.evaluates = cut.evaluates = true;
  whole.factory = fragile_task;
  ASSERT_EQ(whole.go("run", averaging()), 0) << whole.err;
  cut.factory = before_forward(failing_from(6), fragile_task);
  EXPECT_EQ(cut.go("run", averaging()), 1) << cut.err;
  TANREN_EXPECT_CONTAINS(cut.err, "[train] estimate of batch norm's statistics (4 samples");
  ASSERT_TRUE(cut.has_checkpoint(2));
  OwnProgram without;  // without an estimate
  without.factory = fragile_task;
  ASSERT_EQ(without.go("run", averaging({"--set", "run.stop_after=2"})), 0) << without.err;
  for (const auto& [name, tensor] : checkpoint_of(without, 2).average.tensors) {
    EXPECT_TRUE(at::equal(tensor, checkpoint_of(cut, 2).average.tensors.at(name))) << name;
  }
  cut.factory = fragile_task;
  EXPECT_EQ(cut.go("run", averaging()), 0) << cut.err;
  expect_same_state(whole, cut, 4);
  expect_same_log(whole.run(), cut.run());
}

// Issue 22: the log line of the change was written before the line of the evaluation. Both were
// then removed.
TEST(OwnErrors, in_an_evaluation_leave_a_log_with_each_line_once_whatever_is_changed_on_the_way) {
  OwnProgram program;
  program.evaluates = true;
  const std::vector<std::string> every{"--set", "evaluate.every=2"};
  program.factory = before_predict(failing_from(2), fragile_task);
  ASSERT_EQ(program.go("run", every), 1) << program.err;
  // Makes the owed evaluation, but stops before the next update is done.
  auto changed = every;
  changed.insert(changed.end(), {"--set", "optimizer.learning_rate=1e-4"});
  program.factory = before_forward(stopping_at(1), fragile_task);
  ASSERT_EQ(program.go("run", changed), 130) << program.err;
  program.factory = fragile_task;
  ASSERT_EQ(program.go("run", every), 0) << program.err;
  std::vector<std::string> kinds;
  for (const auto& line : read_log(program.run())) {
    kinds.push_back(line.contains("attempt") ? "step" : line.contains("changed") ? "change" : "");
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"step", "step", "", "change", "step", "step", ""}));
}

// Issue 22: a kill in a long evaluation lost a checkpoint that was due.
TEST(OwnErrors, in_an_evaluation_find_a_checkpoint_that_is_due_already_there) {
  OwnProgram program;
  program.evaluates = true;
  bool was_there = false;
  program.factory = before_predict(
      [&, calls = std::make_shared<int64_t>(0)](const Batch&) {
        if (++*calls == 2) was_there = program.has_checkpoint(2);
      },
      fragile_task);
  ASSERT_EQ(program.go("run", {"--set", "evaluate.every=2", "--set", "checkpoint.every=2"}), 0)
      << program.err;
  EXPECT_TRUE(was_there);
}

// --- what a user's sink throws

// Throws an int in step() or evaluation() of step `at`; or, in flush, an error like ours.
class FailingSink : public Sink {
 public:
  FailingSink(int64_t at, bool of_evaluation, bool in_flush = false)
      : at_(at), of_evaluation_(of_evaluation), in_flush_(in_flush) {}
  void step(const StepReport& report) override {
    if (!of_evaluation_ && report.step == at_) throw 42;
  }
  void evaluation(const EvaluationReport& report) override {
    if (of_evaluation_ && report.step == at_) throw 42;
  }
  void flush() override {
    if (in_flush_) throw RunError("[mine] the server is gone");
  }

 private:
  int64_t at_;
  bool of_evaluation_, in_flush_;
};

RunOutput run_with(const std::filesystem::path& folder, std::vector<Sink*> sinks,
                   const std::function<void(RunConfig&)>& change = {},
                   const OwnFactory& factory = fragile_task) {
  ModelRegistry models;
  models.add("own", factory);
  DatasetRegistry datasets;
  datasets.add("points", [](const SourceOptions&, const std::string&, const DataInfo*) {
    return std::make_unique<OwnPoints>(OwnPoints::Spoil());
  });
  RunInput input;
  input.folder = folder;
  input.sinks = std::move(sinks);
  RunConfig& config = input.config;
  config.run.steps = 4;
  config.run.threads = 1;
  config.model.kind = "own";
  config.batch.global_batch = "8";
  config.batch.microbatch = 4;
  config.precision.mode = "fp32";
  config.data.workers = 0;
  config.data.train.kind = config.data.eval.kind = "points";
  config.evaluate.every = 2;
  if (change) change(config);
  return run(input, Registry(std::move(models), std::move(datasets)));
}

TEST(OwnErrors, of_a_sink_cost_no_trained_step_and_say_what_failed) {
  const TemporaryFolder folder;
  run_with(folder.path() / "whole", {});
  for (const bool of_evaluation : {false, true}) {
    for (const int64_t step : {2, 3, 4}) {
      if (of_evaluation && step == 3) continue;
      const auto cut = folder.path() / ("cut" + std::to_string(2 * step + of_evaluation));
      FailingSink sink(step, of_evaluation, /*in_flush=*/true);
      const std::string error = error_of<RunError>([&] { run_with(cut, {&sink}); });
      TANREN_EXPECT_CONTAINS(error, "[metrics] a sink failed: something was thrown that is no");
      const std::string saved = "checkpoints/step-" + std::to_string(step);
      TANREN_EXPECT_CONTAINS(error, saved);
      EXPECT_TRUE(std::filesystem::exists(cut / saved / "COMPLETE")) << error;
      run_with(cut, {});
      expect_same_log(folder.path() / "whole", cut);
    }
  }
}

TEST(OwnErrors, of_a_sinks_flush_show_at_the_end_and_cost_no_checkpoint) {
  const TemporaryFolder folder;
  FailingSink sink(-1, false, /*in_flush=*/true);
  const std::string error = error_of<RunError>([&] { run_with(folder.path() / "run", {&sink}); });
  TANREN_EXPECT_CONTAINS(error, "[mine] the server is gone");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run/checkpoints/step-4/COMPLETE"));
}

// The log's disk may be full while the checkpoints' is not.
TEST(OwnErrors, of_a_log_that_cannot_be_written_cost_no_state) {
  struct Unwritable : Sink {
    void step(const StepReport&) override {}
    void flush() override { throw RecordError("[metrics] cannot write log.jsonl: no room"); }
  } sink;
  const TemporaryFolder folder;
  const std::string error = error_of<RunError>([&] { run_with(folder.path() / "run", {&sink}); });
  TANREN_EXPECT_CONTAINS(error, "cannot write log.jsonl: no room; last checkpoint: ");
  TANREN_EXPECT_CONTAINS(error, "step-4");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run/checkpoints/step-4/COMPLETE"));
}

TEST(OwnErrors, of_a_sinks_flush_cost_no_state_where_the_guard_halts) {
  const TemporaryFolder folder;
  FailingSink sink(-1, false, /*in_flush=*/true);
  const auto factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = fragile_task(options, info);
    task.phases[0].forward = [inner = task.phases[0].forward](const Batch& batch) {
      Terms terms = inner(batch);
      if (!is_dry(batch["inputs"]) && batch.ids[0].item<int64_t>() >= 16) {
        terms[0].sum = terms[0].sum * std::numeric_limits<double>::quiet_NaN();
      }
      return terms;
    };
    return task;
  };
  const auto halting = [](RunConfig& config) {
    config.guard.nan_loss = "stop";
    config.data.shuffle = false;
  };
  const std::string error =
      error_of<RunError>([&] { run_with(folder.path() / "run", {&sink}, halting, factory); });
  TANREN_EXPECT_CONTAINS(error, "[guard] step 3 (attempt 3)");
  TANREN_EXPECT_CONTAINS(error, "step-2");
  EXPECT_FALSE(contains(error, "could not be written")) << error;
}

// The last evaluation decides nothing, so the run continues from the state before it.
TEST(OwnErrors, of_a_sink_in_the_last_evaluation_leave_the_state_before_it) {
  OwnProgram whole, cut;
  const auto steps = [](int64_t count) {
    return [count](RunConfig& config) {
      config.run.steps = count;
      config.evaluate.every = 0;
    };
  };
  run_with(whole.run(), {}, steps(4));
  FailingSink sink(4, /*of_evaluation=*/true);
  EXPECT_THROW(run_with(cut.run(), {&sink}, steps(4)), RunError);
  for (const OwnProgram* program : {&whole, &cut}) run_with(program->run(), {}, steps(6));
  expect_same_state(whole, cut, 6);
}

// Fails in the second microbatch of the third update, after batch norm and the generator have
// changed.
TEST(OwnErrors, in_a_forward_cost_that_update_alone_and_leave_no_trace) {
  OwnProgram whole, cut;
  train(whole);
  cut.factory = before_forward(failing_from(6), fragile_task);
  EXPECT_EQ(cut.go("run"), 1);
  TANREN_EXPECT_CONTAINS(cut.err,
                         "[train] step 3, microbatch 1 (4 samples: inputs Float [4, 6], labels "
                         "Long [4]): it failed; fix the task's forward, or the data; last "
                         "checkpoint: ");
  TANREN_EXPECT_CONTAINS(cut.err, "step-2");
  cut.expect_one_line();
  EXPECT_EQ(cut.attempts(), 2);
  train(cut);
  expect_same_state(whole, cut, 4);
  EXPECT_EQ(cut.attempts(), 4);
}

// The buffers of a body that no objective trains are restored, too.
TEST(OwnErrors, in_a_forward_leave_no_trace_in_what_nobody_trains) {
  const auto frozen = [](const ModelOptions& options, const DataInfo& info) {
    Task task = fragile_task(options, info);
    for (const auto& item : task.module->named_parameters()) {
      item.value().set_requires_grad(item.key().starts_with("head."));
    }
    task.phases[0].objectives[0].parameters = {"head.*"};
    return task;
  };
  OwnProgram whole, cut;
  whole.factory = frozen;
  ASSERT_EQ(whole.go("run"), 0) << whole.err;
  cut.factory = before_forward(failing_from(6), frozen);
  EXPECT_EQ(cut.go("run"), 1);
  cut.factory = frozen;
  ASSERT_EQ(cut.go("run"), 0) << cut.err;
  expect_same_state(whole, cut, 4);
}

// The first search is given up, because the loss is not finite. The search of attempt 2 fails.
TEST(OwnErrors, in_the_search_of_a_loss_scale_leave_no_trace_either) {
  const auto factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = fragile_task(options, info);
    task.phases[0].forward = [inner = task.phases[0].forward](const Batch& batch) {
      Terms terms = inner(batch);
      if (!is_dry(batch["inputs"]) && batch.ids[0].item<int64_t>() == 0) {
        terms[0].sum = terms[0].sum * std::numeric_limits<double>::infinity();
      }
      return terms;
    };
    return task;
  };
  const std::vector<std::string> half{"--set", "precision.mode=fp16",
                                      "--set", "precision.initial_scale=auto",
                                      "--set", "guard.nan_loss=skip"};
  OwnProgram whole, cut;
  whole.factory = factory;
  ASSERT_EQ(whole.go("run", half), 0) << whole.err;
  cut.factory = before_forward(failing_from(6), factory);
  EXPECT_EQ(cut.go("run", half), 1);
  TANREN_EXPECT_CONTAINS(cut.err, "[train] step 1, microbatch 1 (4 samples");
  EXPECT_EQ(cut.attempts(), 1);
  ASSERT_TRUE(cut.has_checkpoint(0)) << cut.err;
  cut.factory = factory;
  ASSERT_EQ(cut.go("run", half), 0) << cut.err;
  expect_same_state(whole, cut, 4);
}

TEST(OwnErrors, of_the_data_cost_no_trained_step_whichever_thread_meets_them) {
  OwnProgram whole;
  train(whole);
  for (const std::string workers : {"0", "2"}) {
    OwnProgram cut;
    cut.factory = fragile_task;
    cut.spoil_train = [](Collated&, const std::vector<int64_t>& indices) {
      // Slow enough that the loader uses threads.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (indices.back() >= 16) throw 42;
    };
    const std::vector<std::string> words{"--set", "data.workers=" + workers};
    EXPECT_EQ(cut.go("run", words), 2) << cut.err;
    TANREN_EXPECT_CONTAINS(cut.err,
                           "[data] collate of samples 16, 17, 18, 19, … (8 of them) failed: "
                           "something was thrown that is no std::exception; fix the dataset "
                           "(for step 3); last checkpoint: ");
    TANREN_EXPECT_CONTAINS(cut.err, "step-2");
    cut.expect_one_line();
    cut.spoil_train = {};
    ASSERT_EQ(cut.go("run", words), 0) << cut.err;
    expect_same_state(whole, cut, 4);
  }
}

}  // namespace
}  // namespace tanren::testing
