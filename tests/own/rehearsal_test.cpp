// One batch of an evaluation is rehearsed before the first step. It shows errors of predict and
// changes no number of the run. Issue 22.
#include "tests/own/fragile.h"

#include <torch/nn/modules/embedding.h>

namespace tanren::testing {
namespace {

using Predict = std::function<Prediction(const Batch&)>;

// The correct task with another predict, which may call the correct one.
OwnFactory predicting(
    const std::function<Prediction(OwnNet&, const Batch&, const Predict&)>& predict) {
  return [predict](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    Task task = supervised(net, options, info);
    task.predict = [net, predict, inner = task.predict](const Batch& batch) {
      return predict(*net, batch, inner);
    };
    return task;
  };
}

TEST(OwnRehearsal, of_an_evaluation_at_the_start_changes_no_number_of_the_run) {
  OwnProgram plain, evaluated;
  train(plain);
  evaluated.evaluates = true;
  train(evaluated);
  expect_same_state(plain, evaluated, 4);
  EXPECT_EQ(evaluated.attempts(), 4);
}

TEST(OwnRehearsal, names_a_term_of_predict_that_no_objective_trains) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    Task task = own_task(options, info);
    task.phases[0].objectives[0].terms = {{"cross_entropy", 2}};
    task.predict = [inner = task.predict](const Batch& batch) {
      Prediction prediction = inner(batch);
      prediction.terms.push_back({"quality", at::ones({})});
      return prediction;
    };
    return task;
  };
  ASSERT_EQ(program.go("run"), 0) << program.err;
  TANREN_EXPECT_CONTAINS(program.err,
                         "[evaluate] the loss is without quality, which no objective trains");
}

TEST(OwnRehearsal, shows_what_is_wrong_with_predict_before_the_first_step) {
  struct Case {
    std::function<void(Task&)> spoil;
    int code;
    std::string part;
  };
  const auto changing = [](const std::function<void(Prediction&)>& change) {
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
       1, "fix the task's predict_rows"},
      {changing(
           [](Prediction& made) { throw std::runtime_error("no idea " + made.terms[0].name); }),
       1,
       "[train] evaluation (4 samples: inputs Float [4, 6], labels Long [4]): no idea "
       "cross_entropy; fix the task's predict"},
      {changing([](Prediction& made) { made.outputs = made.outputs.sum(1); }), 1,
       "[metrics] outputs [4] do not fit targets [4]"},
      {changing([](Prediction& made) { made.terms[0].sum = made.outputs; }), 1,
       "fix the task's predict"},
      {changing([](Prediction& made) { made.terms[0].count_name = "boxes"; }), 2,
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

// Issue 22: the run then trained from other weights than without an evaluation.
TEST(OwnRehearsal, refuses_a_predict_that_sets_a_parameter) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = predicting([](OwnNet& net, const Batch& batch, const Predict& inner) {
    if (!is_dry(batch["inputs"])) net.head->bias.fill_(0.25);
    return inner(batch);
  });
  EXPECT_EQ(program.go("run"), 2);
  TANREN_EXPECT_CONTAINS(program.err, "[evaluate] predict changed parameter head.bias");
  program.expect_one_line();
  EXPECT_EQ(program.attempts(), 0);
}

TEST(OwnRehearsal, takes_a_predict_that_puts_other_weights_in_and_its_own_back) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = predicting([](OwnNet& net, const Batch& batch, const Predict& inner) {
    const at::Tensor own = net.head->bias.clone();
    net.head->bias.fill_(0.25);
    Prediction made = inner(batch);
    net.head->bias.copy_(own);
    return made;
  });
  EXPECT_EQ(program.go("run"), 0) << program.err;
}

// A model whose embedding has max_norm: a forward shortens the rows that it uses if their norm is
// larger.
class ShortenedNet : public torch::nn::Module {
 public:
  ShortenedNet()
      : rows_(register_module(
            "rows", torch::nn::Embedding(torch::nn::EmbeddingOptions(12, 4).max_norm(0.5)))),
        head_(register_module("head", torch::nn::Linear(4, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return head_(rows_(x).sum(1)); }

 private:
  torch::nn::Embedding rows_;
  torch::nn::Linear head_;
};

TEST(OwnRehearsal, puts_rows_back_that_an_embedding_with_a_largest_norm_shortens) {
  const auto rows_from = [](int64_t first) {
    return [first](Collated& made, const auto&) {
      made.batch.fields.set("inputs", first + (made.batch.ids.unsqueeze(1) + at::arange(6)) % 6);
    };
  };
  OwnProgram plain, evaluated;
  evaluated.evaluates = true;
  evaluated.spoil_eval = rows_from(6);  // other rows than those that are trained
  for (OwnProgram* program : {&plain, &evaluated}) {
    program->spoil_train = rows_from(0);
    program->factory = [](const ModelOptions& options, const DataInfo& info) {
      return supervised(std::make_shared<ShortenedNet>(), options, info);
    };
    EXPECT_EQ(program->go("run"), 0) << program->err;
  }
  expect_same_state(plain, evaluated, 4);
}

TEST(OwnRehearsal, takes_parameters_that_are_integers) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    net->register_parameter("table", at::arange(5), /*requires_grad=*/false);
    return supervised(net, options, info);
  };
  EXPECT_EQ(program.go("run"), 0) << program.err;
}

TEST(OwnRehearsal, names_what_the_module_gets_in_its_first_predict) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = predicting([](OwnNet& net, const Batch& batch, const Predict& inner) {
    if (!is_dry(batch["inputs"]) && !net.named_children().contains("late")) {
      net.register_module("late", torch::nn::Linear(3, 3));
    }
    return inner(batch);
  });
  EXPECT_EQ(program.go("run"), 2);
  TANREN_EXPECT_CONTAINS(program.err, "[evaluate] the module had no late.weight, late.bias before");
  program.expect_one_line();
}

TEST(OwnRehearsal, computes_the_metrics_too) {
  OwnProgram program;
  program.evaluates = true;
  program.factory = predicting([](OwnNet&, const Batch& batch, const Predict& inner) {
    Prediction made = inner(batch);
    made.terms[0].name = "nll";
    return made;
  });
  EXPECT_EQ(program.go("run", {"--set", "evaluate.metrics=perplexity"}), 2) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "perplexity needs a term named cross_entropy");
  EXPECT_EQ(program.attempts(), 0);
}

TEST(OwnRehearsal, refuses_a_predict_without_terms_where_what_it_measures_decides) {
  for (const char* decides : {"checkpoint.best=1", "early_stop.patience=2", ""}) {
    OwnProgram program;
    program.evaluates = true;
    program.factory = predicting([](OwnNet&, const Batch& batch, const Predict& inner) {
      Prediction made = inner(batch);
      made.terms.clear();
      return made;
    });
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
  program.factory = predicting([](OwnNet&, const Batch& batch, const Predict& inner) {
    Prediction made = inner(batch);
    made.terms[0].count_name = "boxes";
    made.terms[0].sum = made.terms[0].sum * batch.ids[0].ge(8).to(at::kFloat);
    return made;
  });
  EXPECT_EQ(program.go("run"), 0) << program.err;
}

// Issue 22: the factory was called a first time only to learn sizes. A factory that keeps its
// module then returned that module again.
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

}  // namespace
}  // namespace tanren::testing
