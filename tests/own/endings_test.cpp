// What an own program's error costs: nothing that was trained, and nothing that a start would not have
// seen. Issue 22.
#include "tests/own/own_program.h"

#include "tanren/base/error.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/run/run.h"
#include "tests/support/run_log.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <stdexcept>
#include <thread>

namespace tanren::testing {
namespace {

// All that an error on the way could leave a trace in: batch norm's statistics, a buffer that predict
// counts in, and torch's own generator, from which every forward draws.
class FragileNet : public torch::nn::Module {
 public:
  FragileNet()
      : body_(register_module("body", torch::nn::Linear(6, 8))),
        norm_(register_module("norm", torch::nn::BatchNorm1d(8))),
        head_(register_module("head", torch::nn::Linear(8, 3))) {
    seen_ = register_buffer("seen", at::zeros({}));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (!is_dry(x)) drawn_ = at::rand({});
    return head_(at::dropout(at::relu(norm_(body_(x))), 0.4, is_training()));
  }
  // With a draw and a trace of its own.
  at::Tensor predict(const at::Tensor& x) {
    if (!is_dry(x)) seen_ += at::rand({}) + 1;
    return forward(x);
  }

 private:
  torch::nn::Linear body_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Linear head_;
  at::Tensor seen_, drawn_;
};

Task fragile_task(const ModelOptions& options, const DataInfo& info) {
  auto net = std::make_shared<FragileNet>();
  Task task = supervised(net, options, info);
  task.predict = [net](const Batch& batch) {
    const at::Tensor outputs = net->predict(batch["inputs"]);
    return Prediction{{cross_entropy(outputs, batch["labels"])}, outputs, batch["labels"]};
  };
  return task;
}

// Fails from the call of number `first` on, counted from 1.
OwnHook failing_from(int64_t first) {
  return [first, calls = std::make_shared<int64_t>(0)](const Batch&) {
    if (++*calls >= first) throw std::runtime_error("it failed");
  };
}

Snapshot checkpoint_of(const OwnProgram& program, int64_t step) {
  return read_checkpoint(program.run() / "checkpoints" / ("step-" + std::to_string(step)));
}

bool same_value(const Value& a, const Value& b) {
  const auto* one = std::get_if<double>(&a);
  const auto* other = std::get_if<double>(&b);
  return a == b || (one != nullptr && other != nullptr && std::isnan(*one) && std::isnan(*other));
}

// Weights, their averages, buffers, the optimizer's state, counters and the generator, bitwise; of what
// evaluations decided all but whether this step is judged, and by what.
void expect_same_state(const OwnProgram& a, const OwnProgram& b, int64_t step) {
  ASSERT_TRUE(a.has_checkpoint(step) && b.has_checkpoint(step));
  const Snapshot one = checkpoint_of(a, step), other = checkpoint_of(b, step);
  for (const auto part :
       {&Snapshot::model, &Snapshot::optimizer, &Snapshot::average, &Snapshot::run}) {
    ASSERT_EQ((one.*part).tensors.size(), (other.*part).tensors.size());
    for (const auto& [name, tensor] : (one.*part).tensors) {
      EXPECT_TRUE(at::equal(tensor, (other.*part).tensors.at(name))) << name;
    }
  }
  for (const auto& [name, value] : one.run.values) {
    if (name.ends_with("judged_step") || name.ends_with("_by")) continue;
    ASSERT_EQ(other.run.values.count(name), 1U) << name;
    EXPECT_TRUE(same_value(value, other.run.values.at(name))) << name;
  }
}

void train(OwnProgram& program) {
  program.factory = fragile_task;
  ASSERT_EQ(program.go("run"), 0) << program.err;
}

TEST(OwnRehearsal, of_an_evaluation_at_the_start_changes_no_number_of_the_run) {
  OwnProgram plain, evaluated;
  train(plain);
  evaluated.evaluates = true;
  train(evaluated);
  expect_same_state(plain, evaluated, 4);
  EXPECT_EQ(evaluated.attempts(), 4);
}

TEST(OwnRehearsal, shows_what_is_wrong_with_predict_before_the_first_step) {
  struct Case {
    std::function<void(Task&)> spoil;
    int code;
    std::string part;
  };
  const auto predicting = [](const std::function<void(Prediction&)>& change) {
    return [change](Task& task) {
      task.predict = [change, inner = task.predict](const Batch& batch) {
        Prediction prediction = inner(batch);
        change(prediction);
        return prediction;
      };
    };
  };
  const std::vector<Case> cases{
      {[](Task& task) { task.predict = nullptr; }, 2,
       "[evaluate] the task has no predict, which evaluations ask for; set task.predict"},
      {[](Task& task) {
         task.predict_rows = [](const Batch&) { return PredictionRows{.rows = 4}; };
       },
       1, "mend the task's predict_rows"},
      {predicting(
           [](Prediction& made) { throw std::runtime_error("no idea " + made.terms[0].name); }),
       1,
       "[train] evaluation (4 samples: inputs Float [4, 6], labels Long [4]): no idea "
       "cross_entropy; mend the task's predict"},
      {predicting([](Prediction& made) { made.outputs = made.outputs.sum(1); }), 1,
       "[metrics] outputs [4] do not fit targets [4]"},
      {predicting([](Prediction& made) { made.terms[0].sum = made.outputs; }), 1,
       "mend the task's predict"},
      {predicting([](Prediction& made) { made.terms[0].count_name = "boxes"; }), 2,
       "[evaluate] predict's terms are divided by boxes, and the evaluation data count samples"}};
  for (const Case& one : cases) {
    OwnProgram program;
    program.evaluates = true;
    program.factory = [&](const ModelOptions& options, const DataInfo& info) {
      Task task = own_task(options, info);
      one.spoil(task);
      return task;
    };
    EXPECT_EQ(program.go("run"), one.code) << one.part << ": " << program.err;
    TANREN_EXPECT_CONTAINS(program.err, one.part);
    program.expect_one_line();
    EXPECT_EQ(program.attempts(), 0) << one.part;
    program.factory = own_task;
    EXPECT_EQ(program.go("run"), 0) << "the folder is as good as new: " << program.err;
  }
}

// Issue 22: the run went on from other weights than without an evaluation.
TEST(OwnRehearsal, refuses_a_predict_that_sets_a_parameter) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    Task task = supervised(net, options, info);
    task.predict = [net, inner = task.predict](const Batch& batch) {
      if (!is_dry(batch["inputs"])) net->head->bias.fill_(0.25);
      return inner(batch);
    };
    return task;
  };
  EXPECT_EQ(program.go("run"), 2);
  TANREN_EXPECT_CONTAINS(program.err, "[evaluate] predict changed parameter head.bias");
  program.expect_one_line();
  EXPECT_EQ(program.attempts(), 0);
}

TEST(OwnRehearsal, refuses_a_predict_without_terms_where_what_it_measures_decides) {
  for (const char* decides : {"checkpoint.best=1", "early_stop.patience=2", ""}) {
    OwnProgram program;
    program.evaluates = true;
    program.factory = [](const ModelOptions& options, const DataInfo& info) {
      Task task = own_task(options, info);
      task.predict = [inner = task.predict](const Batch& batch) {
        Prediction made = inner(batch);
        made.terms.clear();
        return made;
      };
      return task;
    };
    const bool is_decided = *decides != 0;
    const std::vector<std::string> words{"--set", decides, "--set", "evaluate.every=2"};
    EXPECT_EQ(program.go("run", is_decided ? words : std::vector<std::string>()),
              is_decided ? 2 : 0)
        << program.err;
    if (!is_decided) continue;
    TANREN_EXPECT_CONTAINS(program.err, "[evaluate] predict returned no terms");
    EXPECT_EQ(program.attempts(), 0);
  }
}

TEST(OwnRehearsal, takes_data_that_name_a_count_only_where_there_is_something_to_count) {
  OwnProgram program;
  program.evaluates = true;
  program.spoil_eval = [](Collated& made, const std::vector<int64_t>& indices) {
    if (indices.front() >= 8) made.counts["boxes"] = static_cast<double>(indices.size());
  };
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = own_task(options, info);
    task.predict = [inner = task.predict](const Batch& batch) {
      Prediction made = inner(batch);
      made.terms[0].count_name = "boxes";
      made.terms[0].sum = made.terms[0].sum * batch.ids[0].ge(8).to(at::kFloat);
      return made;
    };
    return task;
  };
  EXPECT_EQ(program.go("run"), 0) << program.err;
}

// Issue 22: a factory was first called for sizes alone, and one that keeps what it made gave that.
TEST(OwnRehearsal, of_sizes_never_meets_a_factory_that_keeps_its_module) {
  OwnProgram program;
  program.factory = [kept = std::make_shared<std::shared_ptr<OwnNet>>()](
                        const ModelOptions& options, const DataInfo& info) {
    if (*kept == nullptr) *kept = std::make_shared<OwnNet>();
    return supervised(*kept, options, info);
  };
  EXPECT_EQ(program.go("run", {"--set", "memory.limit=8GiB"}), 0) << program.err;
  EXPECT_EQ(program.attempts(), 4);
}

TEST(OwnRehearsal, shows_data_that_no_evaluation_can_read) {
  OwnProgram program;
  program.evaluates = true;
  program.spoil_eval = [](Collated& made, const auto&) { made.batch.ids = at::Tensor(); };
  EXPECT_EQ(program.go("run"), 2);
  TANREN_EXPECT_CONTAINS(program.err, "gave a batch without ids");
  EXPECT_EQ(program.attempts(), 0);
}

TEST(OwnErrors, in_the_last_evaluation_cost_that_evaluation_alone) {
  OwnProgram whole, plain, cut;
  whole.evaluates = cut.evaluates = true;
  train(whole);
  train(plain);
  // The third of the last evaluation's batches: predict has drawn and counted by then.
  cut.factory = before_predict(failing_from(4), fragile_task);  // the first is the rehearsal
  EXPECT_EQ(cut.go("run", {"--set", "evaluate.batch=4"}), 1);
  TANREN_EXPECT_CONTAINS(cut.err, "[train] evaluation (4 samples");
  TANREN_EXPECT_CONTAINS(cut.err, "it failed");
  TANREN_EXPECT_CONTAINS(cut.err, "; last checkpoint: ");
  TANREN_EXPECT_CONTAINS(cut.err, "step-4");
  cut.expect_one_line();
  expect_same_state(plain, cut, 4);
  train(cut);  // mended
  expect_same_state(whole, cut, 4);
  expect_same_log(whole.run(), cut.run());
  EXPECT_EQ(cut.attempts(), 4);
}

// The signal comes in the call of this number.
OwnHook stopping_at(int64_t call) {
  return [call, calls = std::make_shared<int64_t>(0)](const Batch&) {
    if (++*calls == call) std::raise(SIGTERM);
  };
}

// Averaged weights whose statistics are estimated before each evaluation.
std::vector<std::string> averaging(std::vector<std::string> more = {}) {
  for (const char* key : {"average.kind=swa", "average.start=1", "evaluate.every=2",
                          "evaluate.batch=4", "average.buffers=estimate"}) {
    more.insert(more.end(), {"--set", key});
  }
  return more;
}

// Issue 22: what the estimate and the first batches had drawn went into the checkpoint.
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
    }
  }
}

// The second batch of the estimate behind the second step, before which forward was called four times.
TEST(OwnErrors, in_an_estimate_of_statistics_leave_no_trace_of_it_either) {
  OwnProgram whole, cut;
  whole.evaluates = cut.evaluates = true;
  whole.factory = fragile_task;
  ASSERT_EQ(whole.go("run", averaging()), 0) << whole.err;
  cut.factory = before_forward(failing_from(6), fragile_task);
  EXPECT_EQ(cut.go("run", averaging()), 1) << cut.err;
  TANREN_EXPECT_CONTAINS(cut.err, "[train] estimate of batch norm's statistics (4 samples");
  ASSERT_TRUE(cut.has_checkpoint(2));
  cut.factory = fragile_task;
  EXPECT_EQ(cut.go("run", averaging()), 0) << cut.err;
  expect_same_state(whole, cut, 4);
  expect_same_log(whole.run(), cut.run());
}

// Issue 22: the line of the change stood before that of the evaluation, which went with it.
TEST(OwnErrors, in_an_evaluation_leave_a_log_with_each_line_once_whatever_is_changed_on_the_way) {
  OwnProgram program;
  program.evaluates = true;
  const std::vector<std::string> every{"--set", "evaluate.every=2"};
  program.factory = before_predict(failing_from(2), fragile_task);
  ASSERT_EQ(program.go("run", every), 1) << program.err;
  // The evaluation is made; nothing of the update behind it is.
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

// Throws, of anything, once it is told of step `at` or of its evaluation.
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
    if (in_flush_) throw 42;
  }

 private:
  int64_t at_;
  bool of_evaluation_, in_flush_;
};

RunOutput run_with(const std::filesystem::path& folder, std::vector<Sink*> sinks) {
  ModelRegistry models;
  models.add("own", fragile_task);
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
  TANREN_EXPECT_CONTAINS(error, "[metrics] a sink failed: ");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run/checkpoints/step-4/COMPLETE"));
}

// The second microbatch of the third update: batch norm and the generator have moved by then.
TEST(OwnErrors, in_a_forward_cost_that_update_alone_and_leave_no_trace) {
  OwnProgram whole, cut;
  train(whole);
  cut.factory = before_forward(failing_from(6), fragile_task);
  EXPECT_EQ(cut.go("run"), 1);
  TANREN_EXPECT_CONTAINS(cut.err,
                         "[train] step 3, microbatch 1 (4 samples: inputs Float [4, 6], labels "
                         "Long [4]): it failed; mend the task's forward, or the data; last "
                         "checkpoint: ");
  TANREN_EXPECT_CONTAINS(cut.err, "step-2");
  cut.expect_one_line();
  EXPECT_EQ(cut.attempts(), 2);
  train(cut);
  expect_same_state(whole, cut, 4);
  EXPECT_EQ(cut.attempts(), 4);
}

TEST(OwnErrors, in_the_search_of_a_loss_scale_leave_no_trace_either) {
  OwnProgram program;
  program.factory = before_forward(failing_from(2), fragile_task);
  const std::vector<std::string> half{"--set", "precision.mode=fp16", "--set",
                                      "precision.initial_scale=auto"};
  EXPECT_EQ(program.go("run", half), 1);
  TANREN_EXPECT_CONTAINS(program.err, "[train] step 1, microbatch 1 (4 samples");
  EXPECT_EQ(program.attempts(), 0);
  EXPECT_FALSE(program.has_checkpoint(0)) << "there is nothing to save";
}

TEST(OwnErrors, of_the_data_cost_no_trained_step_whichever_thread_meets_them) {
  OwnProgram whole;
  train(whole);
  for (const std::string workers : {"0", "2"}) {
    OwnProgram cut;
    cut.factory = fragile_task;
    cut.spoil_train = [](Collated&, const std::vector<int64_t>& indices) {
      // So long that a loader takes threads.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (indices.back() >= 16) throw 42;
    };
    const std::vector<std::string> words{"--set", "data.workers=" + workers};
    EXPECT_EQ(cut.go("run", words), 2) << cut.err;
    TANREN_EXPECT_CONTAINS(cut.err,
                           "[data] collate of samples 16, 17, 18, 19, … (8 of them) failed: "
                           "something was thrown that is no std::exception; mend the dataset "
                           "(for step 3); last checkpoint: ");
    TANREN_EXPECT_CONTAINS(cut.err, "step-2");
    cut.expect_one_line();
    cut.spoil_train = {};
    ASSERT_EQ(cut.go("run", words), 0) << cut.err;
    expect_same_state(whole, cut, 4);
  }
}

// --- ranks: the error of one ends all

const std::vector<std::string> kTwoRanks{
    "--set", "parallel.data=threads", "--set", "parallel.replicas=2", "--set", "run.threads=2"};

bool has_sample(const at::Tensor& ids, int64_t from) { return ids.ge(from).any().item<bool>(); }

TEST(OwnRanks, end_together_where_the_forward_of_one_fails) {
  for (const bool is_exception : {true, false}) {
    OwnProgram program;
    // Of each eight samples the second rank has the last four.
    program.factory = before_forward([is_exception](const Batch& batch) {
      if (!has_sample(batch.ids, 20)) return;
      if (is_exception) throw std::runtime_error("it failed");
      throw 42;
    });
    EXPECT_EQ(program.go("run", kTwoRanks), 1) << program.err;
    TANREN_EXPECT_CONTAINS(program.err, "[train] step 3, microbatch 0 (4 samples");
    TANREN_EXPECT_CONTAINS(program.err, ", rank 1 of 2: ");
    TANREN_EXPECT_CONTAINS(program.err, is_exception ? "it failed" : "no std::exception");
    program.expect_one_line();
    program.factory = own_task;
    EXPECT_EQ(program.go("run", kTwoRanks), 0) << program.err;
  }
}

TEST(OwnRanks, end_together_where_the_data_of_one_fail) {
  OwnProgram program;
  program.spoil_train = [](Collated&, const std::vector<int64_t>& indices) {
    if (indices.size() > 1 && indices.back() >= 20) throw 42;  // all look at a few single ones
  };
  EXPECT_EQ(program.go("run", kTwoRanks), 2) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "[data] collate of samples 20, 21, 22, 23 failed: ");
  TANREN_EXPECT_CONTAINS(program.err, ", rank 1)");
  program.expect_one_line();
}

// Issue 22: rank 0 had five seconds to save what was due, and where ranks share the state nobody did.
TEST(OwnRanks, find_a_due_checkpoint_where_the_evaluation_of_one_fails_on_the_way) {
  for (const char* zero : {"parallel.zero=0", "parallel.zero=1"}) {
    auto words = kTwoRanks;
    for (const char* key : {zero, "evaluate.every=2", "checkpoint.every=2"}) {
      words.insert(words.end(), {"--set", key});
    }
    OwnProgram whole, cut;
    whole.evaluates = cut.evaluates = true;
    ASSERT_EQ(whole.go("run", words), 0) << whole.err;
    cut.factory = before_predict([](const Batch& batch) {
      if (has_sample(batch.ids, 20)) throw std::runtime_error("it failed");
    });
    EXPECT_EQ(cut.go("run", words), 1) << cut.err;
    TANREN_EXPECT_CONTAINS(cut.err, ", rank 1 of 2: it failed");
    EXPECT_FALSE(contains(cut.err, "last checkpoint")) << "rank 0 knows it: " << cut.err;
    EXPECT_TRUE(cut.has_checkpoint(2)) << zero;
    EXPECT_EQ(cut.attempts(), 2);
    cut.factory = own_task;
    ASSERT_EQ(cut.go("run", words), 0) << cut.err;
    expect_same_log(whole.run(), cut.run());
  }
}

TEST(OwnRanks, end_together_where_the_evaluation_of_one_fails_and_the_run_is_saved) {
  OwnProgram program;
  program.evaluates = true;
  // Of all 24 samples the second rank has the last twelve; its first four are rehearsed.
  program.factory = before_predict([](const Batch& batch) {
    if (has_sample(batch.ids, 20)) throw std::runtime_error("it failed");
  });
  EXPECT_EQ(program.go("run", kTwoRanks), 1) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "[train] evaluation (4 samples");
  TANREN_EXPECT_CONTAINS(program.err, ", rank 1 of 2: it failed");
  EXPECT_TRUE(program.has_checkpoint(4));
  program.factory = own_task;
  EXPECT_EQ(program.go("run", kTwoRanks), 0) << program.err;
  EXPECT_EQ(program.attempts(), 4);
  // What fails on one rank at once is met before the first step.
  OwnProgram rehearsed;
  rehearsed.evaluates = true;
  rehearsed.factory = before_predict([](const Batch& batch) {
    if (has_sample(batch.ids, 12)) throw std::runtime_error("it failed");
  });
  EXPECT_EQ(rehearsed.go("run", kTwoRanks), 1) << rehearsed.err;
  TANREN_EXPECT_CONTAINS(rehearsed.err, ", rank 1 of 2: it failed");
  EXPECT_EQ(rehearsed.attempts(), 0);
}

}  // namespace
}  // namespace tanren::testing
