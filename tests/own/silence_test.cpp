// Mistakes in a user's model or dataset for which torch reports no error: each must give an error
// here. Issue 22.
#include "tests/own/fragile.h"

#include <gtest/gtest.h>

namespace tanren::testing {
namespace {

using MakeTerms = std::function<Terms(const at::Tensor& loss, const at::Tensor& outputs)>;

// A task whose forward returns `terms(loss, outputs)` for the correct loss.
OwnFactory with_terms(const MakeTerms& terms, const std::vector<WeightedTerm>& wanted = {}) {
  return [terms, wanted](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    Task task = supervised(net, options, info);
    task.phases[0].forward = [net, terms](const Batch& batch) {
      const at::Tensor outputs = net->forward(batch["inputs"]);
      return terms(cross_entropy(outputs, batch["labels"]).sum, outputs);
    };
    task.phases[0].objectives[0].terms = wanted;
    return task;
  };
}

void expect_refused(OwnProgram& program, const std::string& part) {
  EXPECT_EQ(program.go("run"), 2) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, part);
  program.expect_one_line();
  EXPECT_EQ(program.attempts(), 0);
  EXPECT_FALSE(program.has_checkpoint(4));
}

TEST(OwnTerms, that_an_objective_wants_and_forward_does_not_return_are_named) {
  OwnProgram program;
  program.factory = with_terms(
      [](const at::Tensor& loss, const at::Tensor&) {
        return Terms{{"cross_entropy", loss}};
      },
      {{"nope", 1.0}});
  expect_refused(program,
                 "[train] step 1: objective loss wants term \"nope\"; forward returned "
                 "cross_entropy");
}

TEST(OwnTerms, that_are_none_are_an_error) {
  OwnProgram program;
  program.factory = with_terms([](const at::Tensor&, const at::Tensor&) { return Terms{}; });
  expect_refused(program, "[train] step 1: forward of phase train returned no terms");
}

TEST(OwnTerms, of_an_integer_type_or_without_a_sum_are_an_error) {
  OwnProgram program;
  program.factory = with_terms([](const at::Tensor&, const at::Tensor& outputs) {
    return Terms{{"hits", outputs.argmax(1).sum()}};
  });
  expect_refused(program, "term hits of objective loss is Long, which has no gradient");
  program.factory = with_terms([](const at::Tensor& loss, const at::Tensor&) {
    return Terms{{"cross_entropy", loss}, {"empty", at::Tensor()}};
  });
  expect_refused(program, "term empty of forward has no sum");
}

TEST(OwnTerms, that_are_no_sum_over_the_samples_are_told_so_before_backward) {
  OwnProgram program;
  program.factory = with_terms([](const at::Tensor&, const at::Tensor& outputs) {
    return Terms{{"rows", outputs.sum(1)}};
  });
  expect_refused(program, "term rows of forward is no scalar");
}

TEST(OwnTerms, without_a_graph_are_named_at_the_first_step_alone_or_beside_others) {
  OwnProgram program;
  program.factory = with_terms([](const at::Tensor& loss, const at::Tensor&) {
    return Terms{{"cross_entropy", loss.detach()}};
  });
  expect_refused(program, "term cross_entropy of objective loss is ");
  TANREN_EXPECT_CONTAINS(program.err, "has no gradient: it was detached");
  program.factory = with_terms([](const at::Tensor& loss, const at::Tensor& outputs) {
    const at::NoGradGuard no_grad;
    return Terms{{"cross_entropy", loss}, {"size", outputs.square().sum()}};
  });
  expect_refused(program, "term size of objective loss is ");
}

TEST(OwnTerms, of_0_or_that_no_objective_weighs_need_no_graph) {
  OwnProgram program;
  program.factory = with_terms([](const at::Tensor& loss, const at::Tensor&) {
    return Terms{{"cross_entropy", loss}, {"none_here", at::zeros({})}};
  });
  EXPECT_EQ(program.go("run"), 0) << program.err;
  OwnProgram told;
  told.factory = with_terms(
      [](const at::Tensor& loss, const at::Tensor& outputs) {
        return Terms{{"cross_entropy", loss}, {"size", outputs.detach().square().sum()}};
      },
      {{"cross_entropy", 1.0}, {"size", 0.0}});
  EXPECT_EQ(told.go("run"), 0) << told.err;
  EXPECT_EQ(told.attempts(), 4);
}

TEST(OwnTerms, of_frozen_layers_beside_others_need_no_graph) {
  OwnProgram program;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    Task task = supervised(net, options, info);
    task.phases[0].forward = [net](const Batch& batch) {
      const at::Tensor hidden = net->body(batch["inputs"]);
      return Terms{cross_entropy(net->head(at::relu(hidden)), batch["labels"]),
                   Term{"hidden", hidden.square().sum()}};
    };
    return task;
  };
  EXPECT_EQ(program.go("run", {"--set", "model.freeze=[body.*]"}), 0) << program.err;
}

// A term from frozen layers needs no graph. Any other term needs one in at least one microbatch of
// the window.
TEST(OwnTerms, need_a_graph_in_one_microbatch_alone_or_none_where_the_module_has_constants) {
  for (const bool freezes : {false, true}) {
    OwnProgram program;
    program.factory = [freezes](const ModelOptions& options, const DataInfo& info) {
      auto net = std::make_shared<OwnNet>();
      if (freezes) net->body->weight.set_requires_grad(false);
      if (freezes) net->body->bias.set_requires_grad(false);
      Task task = supervised(net, options, info);
      task.phases[0].objectives[0].parameters =
          freezes ? std::vector<std::string>{"head.*"} : std::vector<std::string>{"*"};
      task.phases[0].forward = [net, freezes](const Batch& batch) {
        const at::Tensor hidden = net->body(batch["inputs"]);
        const bool is_constant = !freezes && batch.ids[0].item<int64_t>() % 8 == 0;
        const at::Tensor size = hidden.square().sum();
        return Terms{cross_entropy(net->head(at::relu(hidden)), batch["labels"]),
                     Term{"hidden", is_constant ? size.detach() : size}};
      };
      return task;
    };
    EXPECT_EQ(program.go("run"), 0) << program.err;
    EXPECT_EQ(program.attempts(), 4);
    OwnProgram ranks;  // rank 0 has only the constant term
    ranks.factory = program.factory;
    EXPECT_EQ(ranks.go("run", kTwoRanks), 0) << ranks.err;
    EXPECT_EQ(ranks.attempts(), 4);
  }
}

TEST(OwnTerms, without_a_graph_are_named_on_ranks_too) {
  OwnProgram program;
  program.factory = with_terms([](const at::Tensor& loss, const at::Tensor& outputs) {
    return Terms{{"cross_entropy", loss}, {"size", outputs.detach().square().sum()}};
  });
  EXPECT_EQ(program.go("run", kTwoRanks), 2) << program.err;
  TANREN_EXPECT_CONTAINS(program.err, "term size of objective loss is ");
  program.expect_one_line();
}

TEST(OwnTerms, of_weight_0_need_not_be_returned) {
  OwnProgram program;
  program.factory = with_terms(
      [](const at::Tensor& loss, const at::Tensor&) {
        return Terms{{"cross_entropy", loss}};
      },
      {{"cross_entropy", 1.0}, {"later", 0.0}});
  EXPECT_EQ(program.go("run"), 0) << program.err;
}

// Issue 22: the gradients of the microbatches before it were lost silently.
TEST(OwnTerms, of_a_forward_that_changes_gradients_are_refused) {
  const auto backward = [](OwnNet& net, const Batch& batch) {
    cross_entropy(net.forward(batch["inputs"]), batch["labels"]).sum.backward();
  };
  const std::vector<std::function<void(OwnNet&, const Batch&)>> ways{
      backward, [](OwnNet& net, const Batch&) { net.zero_grad(/*set_to_none=*/false); },
      [](OwnNet& net, const Batch&) {
        at::Tensor weight = net.head->weight;
        if (weight.grad().defined()) weight.mutable_grad() = at::zeros_like(weight);
      },
      [&](OwnNet& net, const Batch& batch) {
        backward(net, batch);
        net.zero_grad();
      }};
  auto shared = kTwoRanks;
  for (const char* key : {"parallel.zero=2", "batch.microbatch=2"}) {
    shared.insert(shared.end(), {"--set", key});
  }
  for (size_t way = 0; way < ways.size(); ++way) {
    for (const auto& words : {std::vector<std::string>(), shared}) {
      OwnProgram program;
      program.factory = [&](const ModelOptions& options, const DataInfo& info) {
        auto net = std::make_shared<OwnNet>();
        Task task = supervised(net, options, info);
        task.phases[0].forward = [net, change = ways[way]](const Batch& batch) {
          // In a rank's second microbatch there are gradients to lose.
          const int64_t first = batch.ids[0].item<int64_t>() % 4;
          if (!is_dry(batch["inputs"]) && (first > 0 || batch.size() == 4)) change(*net, batch);
          return Terms{cross_entropy(net->forward(batch["inputs"]), batch["labels"])};
        };
        return task;
      };
      EXPECT_EQ(program.go("run", words), 2) << way << program.err;
      TANREN_EXPECT_CONTAINS(program.err, "[train] step 1: forward changed the gradient of ");
      program.expect_one_line();
    }
  }
}

TEST(OwnData, that_forget_the_ids_are_named_and_train_nothing) {
  OwnProgram program;
  program.spoil_train = [](Collated& made, const auto&) { made.batch.ids = at::Tensor(); };
  EXPECT_EQ(program.go("run"), 2);
  TANREN_EXPECT_CONTAINS(program.err, "gave a batch without ids; set batch.ids");
  program.expect_one_line();
  EXPECT_EQ(program.go("plan"), 2);
  TANREN_EXPECT_CONTAINS(program.err, "gave a batch without ids");
}

TEST(OwnData, are_held_to_the_invariant_of_a_batch_on_every_batch) {
  struct Case {
    OwnPoints::Spoil spoil;
    std::string part;
  };
  // Not in the first samples, which the plan reads.
  const auto late = [](const std::vector<int64_t>& indices) { return indices.back() >= 16; };
  const std::vector<Case> cases{{[late](Collated& made, const auto& indices) {
                                   if (late(indices)) made.batch.ids = made.batch.ids.to(at::kInt);
                                 },
                                 "gave ids that are Int of 1 dimensions on cpu"},
                                {[late](Collated& made, const auto& indices) {
                                   if (late(indices))
                                     made.batch.ids = at::cat({made.batch.ids, made.batch.ids});
                                 },
                                 "gave 16 ids; give one for each sample"},
                                {[late](Collated& made, const auto& indices) {
                                   if (late(indices)) made.batch.ids[0] = 24;
                                 },
                                 "gave the id 24 and there are 24"},
                                {[late](Collated& made, const auto& indices) {
                                   if (late(indices))
                                     made.batch.fields.set("labels",
                                                           made.batch["labels"].slice(0, 1));
                                 },
                                 "gave 7 rows as labels beside 8 ids"},
                                {[late](Collated& made, const auto& indices) {
                                   if (late(indices)) made.batch.fields.set("weight", at::ones({}));
                                 },
                                 "gave a scalar as weight beside 8 ids"}};
  for (const Case& one : cases) {
    OwnProgram program;
    program.spoil_train = one.spoil;
    EXPECT_EQ(program.go("run"), 2) << one.part;
    TANREN_EXPECT_CONTAINS(program.err, one.part);
    TANREN_EXPECT_CONTAINS(program.err, "collate of samples 16, 17, 18, 19, … (8 of them)");
    TANREN_EXPECT_CONTAINS(program.err, "(for step 3)");
    program.expect_one_line();
    EXPECT_TRUE(program.has_checkpoint(2)) << "what was trained is lost: " << one.part;
  }
}

TEST(OwnData, that_count_no_samples_are_counted_in_evaluations_too) {
  OwnProgram program;
  program.evaluates = true;
  program.spoil_train =
      program.spoil_eval = [](Collated& made, const auto&) { made.counts.clear(); };
  EXPECT_EQ(program.go("run"), 0) << program.err;
}

// --- what a module may do

TEST(OwnModules, that_grow_in_their_first_forward_are_named_and_leave_no_checkpoint) {
  for (const bool buffer : {false, true}) {
    OwnProgram program;
    program.factory = [buffer](const ModelOptions& options, const DataInfo& info) {
      auto net = std::make_shared<OwnNet>();
      Task task = supervised(net, options, info);
      task.phases[0].forward = [net, buffer](const Batch& batch) {
        if (!buffer && !net->named_children().contains("late")) {
          net->register_module("late", torch::nn::Linear(3, 3));
        }
        if (buffer && !net->named_buffers().contains("late")) {
          net->register_buffer("late", at::zeros({3}));
        }
        return Terms{cross_entropy(net->forward(batch["inputs"]), batch["labels"])};
      };
      return task;
    };
    expect_refused(program, buffer ? "[train] step 1: the module had no late before"
                                   : "[train] step 1: the module had no late.weight, late.bias");
  }
}

TEST(OwnModules, in_double_or_half_are_told_in_the_plan) {
  for (const auto dtype : {at::kDouble, at::kHalf}) {
    OwnProgram program;
    program.factory = [dtype](const ModelOptions& options, const DataInfo& info) {
      auto net = std::make_shared<OwnNet>();
      net->head->to(dtype);
      return supervised(net, options, info);
    };
    EXPECT_EQ(program.go("plan"), 0) << program.err;
    const std::string is = dtype == at::kDouble ? "Double" : "Half";
    TANREN_EXPECT_CONTAINS(program.out, "2 tensors of the model come in another dtype");
    TANREN_EXPECT_CONTAINS(program.out, " is " + is);
    EXPECT_EQ(program.go("run"), 0) << program.err;
    EXPECT_EQ(program.go("plan", {"--set", "precision.mode=fp64"}), 0) << program.err;
    EXPECT_EQ(contains(program.out, "come in another dtype"), dtype == at::kHalf) << program.out;
  }
  OwnProgram plain;
  EXPECT_EQ(plain.go("plan"), 0);
  EXPECT_FALSE(contains(plain.out, "come in another dtype")) << plain.out;
}

TEST(OwnModules, with_complex_parameters_or_buffers_are_refused) {
  for (const bool buffer : {false, true}) {
    OwnProgram program;
    program.factory = [buffer](const ModelOptions& options, const DataInfo& info) {
      auto net = std::make_shared<OwnNet>();
      const at::Tensor turn = at::ones({3}, at::kComplexFloat);
      if (buffer) net->register_buffer("turn", turn);
      if (!buffer) net->register_parameter("turn", turn);
      return supervised(net, options, info);
    };
    for (const std::string verb : {"plan", "run", "summary"}) {
      EXPECT_EQ(program.go(verb), 2) << verb;
      TANREN_EXPECT_CONTAINS(program.err, std::string("[model] kind 'own': ") +
                                              (buffer ? "buffer" : "parameter") +
                                              " turn is ComplexFloat");
      program.expect_one_line();
    }
  }
}

}  // namespace
}  // namespace tanren::testing
