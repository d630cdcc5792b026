// The verbs on a user's faulty program: one line of error and an exit code. And `plan` works for
// every program for which `run` works. Issue 22.
#include "tests/own/own_program.h"

#include "tanren/base/error.h"
#include "tanren/blocks/block.h"
#include "tests/support/tiny_run.h"

#include <gtest/gtest.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>

#include <map>
#include <stdexcept>

namespace tanren::testing {
namespace {

constexpr const char* kNoException = "something was thrown that is no std::exception";

// Runs the verb on the program after `spoil` broke it; for `eval`, trains before that.
int go_spoilt(OwnProgram& program, const std::string& verb,
              const std::function<void(OwnProgram&)>& spoil) {
  program.evaluates = true;
  if (verb == "eval") {
    EXPECT_EQ(program.go("run"), 0) << program.err;
  }
  spoil(program);
  if (verb == "eval") return program.go(verb, {program.run().string()});
  if (verb == "anatomy") return program.go(verb, {"--out", program.at("report").string()});
  return program.go(verb);
}

TEST(OwnVerbs, end_with_a_line_and_a_code_whatever_the_program_throws) {
  struct Fault {
    std::string name;
    std::function<void(OwnProgram&)> spoil;
    std::map<std::string, int> codes;  // exit code by verb; other verbs are not tested
    std::string part;                  // must be in the error line
  };
  const OwnPoints::Spoil no_rows = [](Collated&, const std::vector<int64_t>&) { throw 42; };
  const std::vector<Fault> faults{
      {"factory",
       [](OwnProgram& program) {
         program.factory = [](const auto&, const auto&) -> Task { throw 42; };
       },
       {{"run", 1}, {"plan", 1}, {"summary", 1}, {"anatomy", 1}, {"eval", 1}},
       std::string("[model] kind 'own' could not be built: ") + kNoException},
      {"factory with an error of torch",
       [](OwnProgram& program) {
         program.factory = [](const auto&, const auto&) -> Task {
           C10_THROW_ERROR(Error, "no such width");
         };
       },
       {{"run", 1}, {"plan", 1}, {"eval", 1}},
       "[model] kind 'own' could not be built: no such width"},
      {"data",
       [](OwnProgram& program) { program.on_open = [] { throw 42; }; },
       {{"run", 2}, {"plan", 2}, {"summary", 2}, {"anatomy", 2}, {"eval", 2}},
       std::string("[data.train] kind 'points' could not be opened: ") + kNoException},
      {"collate",
       [no_rows](OwnProgram& program) { program.spoil_train = program.spoil_eval = no_rows; },
       {{"run", 2}, {"plan", 2}, {"summary", 2}, {"anatomy", 2}, {"eval", 2}},
       std::string("failed: ") + kNoException + "; fix the dataset"},
      {"forward",
       [](OwnProgram& program) {
         program.factory = before_forward([](const Batch&) { throw 42; });
       },
       {{"run", 1}, {"plan", 0}, {"summary", 0}, {"anatomy", 1}, {"eval", 0}},
       std::string("[train] step 1, microbatch 0 (4 samples: inputs Float [4, 6], labels Long "
                   "[4]): ") +
           kNoException + "; fix the task's forward, or the data"},
      {"predict",
       [](OwnProgram& program) {
         program.factory = [](const ModelOptions& options, const DataInfo& info) {
           Task task = own_task(options, info);
           task.predict = [](const Batch&) -> Prediction { throw 42; };
           return task;
         };
       },
       {{"run", 1}, {"plan", 0}, {"summary", 1}, {"eval", 1}},
       kNoException}};
  for (const Fault& fault : faults) {
    for (const auto& [verb, code] : fault.codes) {
      OwnProgram program;
      EXPECT_EQ(go_spoilt(program, verb, fault.spoil), code)
          << fault.name << ", " << verb << ": " << program.err;
      if (code == 0) continue;
      TANREN_EXPECT_CONTAINS(program.err, fault.part);
      program.expect_one_line();
      if (verb == "run") {
        EXPECT_EQ(program.attempts(), 0) << fault.name;
      }
    }
  }
}

TEST(OwnVerbs, plan_tells_what_its_model_or_predict_makes_unknown) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = own_task(options, info);
    task.phases[0].forward = [](const Batch&) -> Terms { throw 42; };
    return task;
  };
  EXPECT_EQ(program.go("plan"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out, "predicted peak of a step: unknown: ");
  TANREN_EXPECT_CONTAINS(program.out, kNoException);
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = own_task(options, info);
    task.predict = [](const Batch&) -> Prediction { throw 42; };
    return task;
  };
  EXPECT_EQ(program.go("plan"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out,
                         std::string("predicted peak of an evaluation: unknown: ") + kNoException);
  EXPECT_EQ(program.go("plan", {"--json"}), 0);
  TANREN_EXPECT_CONTAINS(program.out, "\"evaluation_unknown\": ");
}

// --- plan works for every program for which run works

// Six tokens per sample, each with a learnt position.
class PlacedNet : public torch::nn::Module {
 public:
  PlacedNet() : embed_(register_module("embed", torch::nn::Embedding(5, 8))) {
    places_ = register_parameter("places", at::randn({6, 8}) * 0.1);
    head_ = register_module("head", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& tokens) { return head_((embed_(tokens) + places_).mean(1)); }

 private:
  torch::nn::Embedding embed_;
  at::Tensor places_;
  torch::nn::Linear head_{nullptr};
};

TEST(OwnPlans, of_a_model_with_learnt_positions_are_made_as_its_runs_are) {
  OwnProgram program;
  program.evaluates = true;
  program.spoil_train = program.spoil_eval = [](Collated& made, const auto&) {
    made.batch.fields.set("inputs", (made.batch.ids.unsqueeze(1) + at::arange(6)) % 5);
  };
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<PlacedNet>(), options, info);
  };
  EXPECT_EQ(program.go("run"), 0) << program.err;
  EXPECT_EQ(program.go("plan"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out, "predicted peak of a step (by a dry run)");
  TANREN_EXPECT_CONTAINS(program.out, "- the model does not take it");
}

// A single sample has no variance, so torch's batch norm refuses it.
class NormedNet : public torch::nn::Module {
 public:
  NormedNet()
      : body_(register_module("body", torch::nn::Linear(6, 8))),
        norm_(register_module("norm", torch::nn::BatchNorm1d(8))),
        head_(register_module("head", torch::nn::Linear(8, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return head_(at::relu(norm_(body_(x)))); }

 private:
  torch::nn::Linear body_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Linear head_;
};

TEST(OwnPlans, of_a_model_that_refuses_a_single_sample_are_made_as_its_runs_are) {
  OwnProgram program;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<NormedNet>(), options, info);
  };
  EXPECT_EQ(program.go("run"), 0) << program.err;
  EXPECT_EQ(program.go("plan"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out, "- the model does not take it");
}

TEST(OwnPlans, of_a_model_of_one_size_of_batch_are_made_as_its_runs_are) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    const auto forward = [net](const at::Tensor& x) { return net->forward(x.view({4, 6})); };
    return supervised(net, forward, options, info);
  };
  EXPECT_EQ(program.go("run"), 0) << program.err;
  EXPECT_EQ(program.go("plan"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out, "- the model does not take it");
}

TEST(OwnPlans, tell_what_the_task_says_of_itself) {
  constexpr const char* kCoupled = "batch norm couples the samples of a microbatch";
  OwnProgram program;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = own_task(options, info);
    task.facts = {.couples_samples = true, .torch_dropout = "the graph"};
    return task;
  };
  ASSERT_EQ(program.go("plan"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out, kCoupled);
  TANREN_EXPECT_CONTAINS(program.out, "but the graph is torch's dropout");
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = supervised(std::make_shared<NormedNet>(), options, info);
    task.facts.couples_samples = false;
    return task;
  };
  ASSERT_EQ(program.go("plan"), 0) << program.err;
  EXPECT_EQ(program.out.find(kCoupled), std::string::npos) << program.out;
}

TEST(OwnPlans, of_a_model_that_needs_values_are_made_by_real_steps_and_evaluations_make_none) {
  int64_t calls = 0;
  OwnProgram program;
  program.evaluates = true;
  program.factory = [&calls](const ModelOptions& options, const DataInfo& info) {
    Task task = own_task(options, info);
    task.phases[0].forward = [&calls, inner = task.phases[0].forward](const Batch& batch) {
      if (!is_dry(batch["inputs"])) ++calls;
      EXPECT_GE(batch["labels"].sum().item<int64_t>(), 0);
      return inner(batch);
    };
    return task;
  };
  ASSERT_EQ(program.go("plan"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.out, "predicted peak of a step (by two steps of 1 and 2 samples)");
  EXPECT_GT(calls, 0);
  ASSERT_EQ(program.go("run"), 0) << program.err;
  EXPECT_EQ(program.attempts(), 4);
  calls = 0;
  const std::string run = program.run().string();
  ASSERT_EQ(program.go("eval", {run, "--set", "run.threads=2"}), 0) << program.err;
  EXPECT_EQ(calls, 0);
}

// --- what a task lacks

TEST(OwnTasks, that_lack_what_a_run_calls_are_named_by_every_verb) {
  struct Case {
    std::function<void(Task&)> spoil;
    std::string part;
  };
  const std::vector<Case> cases{
      {[](Task& task) { task.module = nullptr; }, "its task has no module; set task.module"},
      {[](Task& task) { task.phases.clear(); }, "its task has no phases; push a PhaseSpec"},
      {[](Task& task) { task.phases[0].forward = nullptr; },
       "phase train of its task has no forward; set phase.forward"},
      {[](Task& task) { task.phases[0].objectives.clear(); },
       "phase train of its task has no objectives; keep the one"}};
  for (const Case& one : cases) {
    for (const std::string verb : {"run", "plan", "summary", "anatomy"}) {
      OwnProgram program;
      const int code = go_spoilt(program, verb, [&](OwnProgram& spoilt) {
        spoilt.factory = [&](const ModelOptions& options, const DataInfo& info) {
          Task task = own_task(options, info);
          one.spoil(task);
          return task;
        };
      });
      EXPECT_EQ(code, 2) << verb << ": " << program.err;
      TANREN_EXPECT_CONTAINS(program.err, "[model] kind 'own': " + one.part);
      program.expect_one_line();
    }
  }
}

TEST(OwnTasks, that_come_from_no_registry_are_looked_at_too) {
  const OwnPoints data{OwnPoints::Spoil()};
  Task task = own_task({}, data.info());
  task.phases[0].objectives.clear();
  const std::string error =
      error_of<ConfigError>([&] { TinyRun(tiny_config("mlp"), &data, task); });
  TANREN_EXPECT_CONTAINS(error, "[train] this run: phase train of its task has no objectives");
}

TEST(OwnTasks, of_an_empty_factory_are_refused_where_it_is_registered) {
  ModelRegistry models;
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] { models.add("own", {}); }),
                         "[model] kind 'own' has an empty factory; give a function");
  EXPECT_EQ(models.kinds(), ModelRegistry().kinds()) << "nothing of it stays";
  DatasetRegistry datasets;
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] { datasets.add("points", {}); }),
                         "[data] kind 'points' has an empty factory; give a function");
  EXPECT_TRUE(datasets.kinds().empty());
}

// --- where an error comes from

TEST(OwnErrors, are_one_line_and_with_verbose_also_torchs_stack) {
  OwnProgram program;
  program.factory = before_forward([](const Batch&) { C10_THROW_ERROR(Error, "no way through"); });
  EXPECT_EQ(program.go("run"), 1);
  TANREN_EXPECT_CONTAINS(program.err, "no way through; fix the task's forward");
  program.expect_one_line();
  EXPECT_EQ(program.go("run", {"--verbose"}), 1);
  EXPECT_EQ(program.err.find("[train] step 1, microbatch 0"), 0U) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "\nno way through");
  TANREN_EXPECT_CONTAINS(program.err, "Exception raised from");
  // An error without our own text names --verbose, and every verb accepts that option.
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = own_task(options, info);
    task.predict = [](const Batch&) -> Prediction { C10_THROW_ERROR(Error, "no way back"); };
    return task;
  };
  EXPECT_EQ(program.go("summary"), 1);
  EXPECT_EQ(program.err, "[summary] no way back; --verbose shows where it comes from\n");
  EXPECT_EQ(program.go("summary", {"--verbose"}), 1);
  EXPECT_EQ(program.err.find("[summary] no way back\n"), 0U) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "Exception raised from");
  for (const std::string verb : {"run", "plan", "eval", "summary", "anatomy", "convert"}) {
    EXPECT_NE(program.go(std::vector<std::string>{"own", verb, "nothing-here", "--verbose"}), 0);
    EXPECT_FALSE(contains(program.err, "takes no --verbose")) << verb << ": " << program.err;
  }
}

TEST(OwnErrors, name_the_block_that_they_left_and_a_backward) {
  OwnProgram program;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    const auto forward = [net](const at::Tensor& x) {
      return run_block("middle", [&] {
        TORCH_CHECK(is_dry(x), "no way through");
        return net->forward(x);
      });
    };
    return supervised(net, forward, options, info);
  };
  EXPECT_EQ(program.go("run"), 1);
  TANREN_EXPECT_CONTAINS(program.err, "labels Long [4]), in block middle: no way through; fix");
  program.expect_one_line();
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    const auto forward = [net](const at::Tensor& x) {
      const at::Tensor y = net->forward(x);
      if (y.requires_grad() && !is_dry(x)) {
        y.register_hook([](const at::Tensor&) { throw std::runtime_error("no way back"); });
      }
      return y;
    };
    return supervised(net, forward, options, info);
  };
  EXPECT_EQ(program.go("run"), 1);
  TANREN_EXPECT_CONTAINS(program.err, ", in backward: ");
  TANREN_EXPECT_CONTAINS(program.err, "no way back");
  program.expect_one_line();
}

}  // namespace
}  // namespace tanren::testing
