// What the ranks of a run in stages hold, send and agree on, and how such a run ends.
#include "tests/stages/staged_models.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/train/check_blocks.h"
#include "tanren/train/pipeline.h"
#include "tanren/train/step_error.h"

#include <c10/util/Exception.h>

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

constexpr const char* kTied = "transformer.wte.weight";

StagedRun gpt2_run(const TokenData& data, int stages, int replicas) {
  StagedRun run{
      .config = ranks_config("fp64"), .data = data, .stages = stages, .replicas = replicas};
  run.config.batch.microbatch = 12 / replicas / 3;
  return run;
}

TEST(StageRanks, hold_the_tensors_of_their_blocks_alone) {
  const TokenData data(38);
  const StagedRun run = gpt2_run(data, 3, 1);
  std::mutex mutex;
  std::map<std::string, std::set<int64_t>> holders;
  on_mesh(run, [&](StageRank& rank) {
    const auto& stage = *rank.state.stage;
    const TensorMap own = rank.state.model_tensors();
    std::set<std::string> trained, with_state;
    for (const auto& parameter : rank.objective().parameters) trained.insert(parameter.name);
    for (const auto& [name, tensor] : rank.state.optimizer_state().tensors) {
      const std::string path = name.substr(std::string("train.loss.").size());
      with_state.insert(path.substr(0, path.rfind('.')));
    }
    EXPECT_EQ(with_state, trained);
    for (const auto& item : rank.state.task.module->named_parameters()) {
      const at::Tensor& parameter = item.value();
      const bool is_held = own.contains(item.key());
      EXPECT_EQ(is_held, stage.holds(item.key())) << item.key();
      if (is_held) {
        const std::lock_guard lock(mutex);
        holders[item.key()].insert(stage.stage);
        EXPECT_EQ(trained.count(item.key()) > 0, parameter.requires_grad()) << item.key();
      } else {
        EXPECT_EQ(trained.count(item.key()), 0U) << item.key();
        EXPECT_GT(parameter.numel(), 0);
        (void)parameter.view(-1);
        auto* memory = parameter.storage().unsafeGetStorageImpl();
        EXPECT_EQ(memory->_mutable_data_ptr_no_checks().get(), nullptr) << item.key();
        TANREN_EXPECT_CONTAINS(error_of<c10::Error>([&] { (void)parameter.detach().sum(); }),
                               "another stage holds");
      }
    }
  });
  size_t parameters = 0;
  for (const auto& item : run.task().module->named_parameters()) {
    ++parameters;
    const size_t expected = item.key() == kTied ? 2 : 1;
    EXPECT_EQ(holders[item.key()].size(), expected) << item.key();
  }
  EXPECT_EQ(holders.size(), parameters);
  EXPECT_EQ(holders[kTied], (std::set<int64_t>{0, 2}));
}

TEST(StageRanks, hold_what_code_between_blocks_reads_in_every_later_stage) {
  const StagedModel model("own", "fp32");
  StagedRun run = model.run(1);
  run.stages = 3;
  const auto plans = cut_run(run);
  EXPECT_EQ(plans[0].holders_of("first.weight"), std::vector<int64_t>{0});
  EXPECT_EQ(plans[0].holders_of("second.weight"), std::vector<int64_t>{1});
  EXPECT_EQ(plans[0].holders_of("second.bias"), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(plans[1].owns("second.bias"));
  EXPECT_FALSE(plans[2].owns("second.bias"));
}

TEST(StageRanks, hold_the_statistics_of_their_layers) {
  const StagedModel model("convnet", "fp32");
  StagedRun run = model.run(1);
  run.stages = 3;
  const StagePlan plan = cut_run(run).front();
  int statistics = 0;
  for (const std::string& name : run.task().module->named_buffers().keys()) {
    const size_t path = name.rfind("running_");
    if (path == std::string::npos) continue;
    ++statistics;
    EXPECT_FALSE(plan.is_tied(name)) << name;
    EXPECT_EQ(plan.holders_of(name), plan.holders_of(name.substr(0, path) + "weight")) << name;
  }
  EXPECT_GE(statistics, 2);
}

// For each microbatch, one output crosses each cut forward and one gradient back. The two holders
// of a weight exchange its gradients. The shape of the full microbatches is sent once.
TEST(StageRanks, send_two_messages_over_each_cut_and_two_for_a_weight_of_two_stages) {
  const TokenData data(36);
  constexpr int kUpdates = 3, kMicrobatches = 3;
  for (const int stages : {2, 3, 4}) {
    for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
      StagedRun run = gpt2_run(data, stages, 2);
      run.schedule = schedule;
      const Mesh mesh(run.stages, run.replicas);
      on_mesh(mesh, run, [&](StageRank& rank) {
        for (int i = 0; i < kUpdates; ++i) rank.step();
      });
      const int64_t cuts = stages - 1;
      for (const int replica : {0, 1}) {
        EXPECT_EQ(mesh.num_operations_of(replica), kUpdates * (2 * cuts * kMicrobatches + 2) + cuts)
            << stages << " stages";
      }
    }
  }
}

TEST(StageRanks, send_no_gradient_below_the_first_trained_stage) {
  const StagedModel model("mlp", "fp32");  // hidden.0, hidden.1, hidden.2, head
  StagedRun run = model.run(1);
  run.config.model.freeze = {"hidden.0.*"};
  run.stages = 4;
  run.config.batch.microbatch = 3;
  const Mesh mesh(4, 1);
  on_mesh(mesh, run, [](StageRank& rank) { rank.step(); });
  // Three microbatches: outputs over three cuts, gradients over two, a shape over each cut.
  EXPECT_EQ(mesh.num_operations_of(0), 3 * 3 + 2 * 3 + 3);
}

// A task that runs out of memory in its second microbatch: in the forward of the block `place`
// ("first" or "second"), or in the "backward".
Task task_without_memory(const std::string& place, const DataInfo& info) {
  struct Net : torch::nn::Module {
    Net() {
      first = register_module("first", torch::nn::Linear(64, 8));
      second = register_module("second", torch::nn::Linear(8, 5));
    }
    torch::nn::Linear first{nullptr}, second{nullptr};
    int calls = 0;
  };
  const auto net = std::make_shared<Net>();
  const auto forward = [net, place](const at::Tensor& inputs) {
    const auto throws = [] {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: 77 bytes");
    };
    const auto run_out = [&](const char* name) {
      if (name == place && ++net->calls == 2) throws();
    };
    const at::Tensor x = run_block("first", [&] {
      run_out("first");
      return net->first(inputs.flatten(1));
    });
    return run_block("second", [&] {
      run_out("second");
      at::Tensor y = net->second(x);
      if (place == "backward" && ++net->calls == 2) {
        y.register_hook([throws](const at::Tensor&) { throws(); });
      }
      return y;
    });
  };
  return supervised(net, forward, {.kind = "own"}, info);
}

TEST(StageRanks, that_run_out_of_memory_end_the_run_with_stage_action_and_microbatch) {
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(1);
  run.stages = 2;
  for (const std::string block : {"first", "second"}) {
    run.make_task = [&] { return task_without_memory(block, model.data->info()); };
    const std::string error =
        error_of<MemoryError>([&] { on_mesh(run, [](StageRank& rank) { rank.step(); }); });
    TANREN_EXPECT_CONTAINS(error, "[memory] step 1, forward of microbatch 2, stage " +
                                      std::string(block == "first" ? "1" : "2") + " of 2");
    TANREN_EXPECT_CONTAINS(error, "out of memory in block " + block + " with 4 samples");
    TANREN_EXPECT_CONTAINS(error, "77 bytes");
    TANREN_EXPECT_CONTAINS(
        error, "take batch.microbatch = 2 or memory.recompute = [\"*\"] or more stages");
  }
  run.make_task = [&] { return task_without_memory("backward", model.data->info()); };
  const std::string error =
      error_of<MemoryError>([&] { on_mesh(run, [](StageRank& rank) { rank.step(); }); });
  TANREN_EXPECT_CONTAINS(error, "[memory] step 1, backward of microbatch 2, stage 2 of 2");
}

// Two layers in blocks, and a buffer.
struct BufferNet : torch::nn::Module {
  BufferNet() {
    first = register_module("first", torch::nn::Linear(64, 8));
    second = register_module("second", torch::nn::Linear(8, 5));
    factor = register_buffer("factor", at::ones({8}));
  }

  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor factor;
};

TEST(StageRanks, that_overwrite_what_a_backward_needs_are_told_what_may_have_done_it) {
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(1);
  run.stages = 2;
  run.make_task = [&] {
    const auto net = std::make_shared<BufferNet>();
    const auto forward = [net](const at::Tensor& inputs) {
      const at::Tensor x = run_block("first", [&] {
        at::Tensor y = net->first(inputs.flatten(1)) * net->factor;
        net->factor.mul_(0.5);
        return y;
      });
      return run_block("second", [&] { return net->second(x); });
    };
    return supervised(net, forward, {.kind = "own"}, model.data->info());
  };
  const std::string error =
      error_of<StepError>([&] { on_mesh(run, [](StageRank& rank) { rank.step(); }); });
  TANREN_EXPECT_CONTAINS(error, "step 1, microbatch 1, stage 1 of 2");
  TANREN_EXPECT_CONTAINS(error, "modified by an inplace operation");
  TANREN_EXPECT_CONTAINS(error,
                         "fix the task's backward (2 microbatches were in flight: a block may have "
                         "saved a buffer that it updates in place");
}

// A stage below all trained weights keeps no microbatch, however many are in flight.
TEST(StageRanks, that_run_out_of_memory_count_the_microbatches_that_hold_some) {
  const StagedModel model("mlp", "fp32");
  for (const bool is_frozen : {true, false}) {
    StagedRun run = model.run(1);
    run.stages = 2;
    run.schedule = PipelineSchedule::gpipe;
    if (is_frozen) run.config.model.freeze = {"hidden.*"};
    const StagedRun plain = run;
    run.make_task = [plain] {
      Task task = plain.task();
      auto& forward = task.phases.front().forward;
      forward = [inner = forward, calls = 0](const Batch& batch) mutable {
        if (++calls == 3) throw std::bad_alloc();
        return inner(batch);
      };
      return task;
    };
    const std::string error =
        error_of<MemoryError>([&] { on_mesh(run, [](StageRank& rank) { rank.step(); }); });
    TANREN_EXPECT_CONTAINS(error, "step 1, forward of microbatch 3, stage 1 of 2: out of memory");
    TANREN_EXPECT_CONTAINS(error, is_frozen ? " with 1 samples, 0 others in flight"
                                            : " with 1 samples, 2 others in flight");
  }
}

TEST(StageRanks, that_would_each_change_a_buffer_of_their_own_are_refused) {
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(1);
  run.stages = 2;
  run.make_task = [&] {
    const auto net = std::make_shared<BufferNet>();
    const auto forward = [net](const at::Tensor& inputs) {
      const at::Tensor x = run_block("first", [&] { return net->first(inputs.flatten(1)); });
      net->factor.mul_(0.5);
      return run_block("second", [&] { return net->second(x * net->factor); });
    };
    return supervised(net, forward, {.kind = "own"}, model.data->info());
  };
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { cut_run(run); }),
                         "[pipeline] the forward changes the buffer factor in 2 stages");
}

TEST(StageRanks, refuse_patterns_that_match_no_block_of_any_stage) {
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(1);
  run.stages = 2;
  run.config.memory.recompute = {"hidden.0", "hidden.2"};  // of two stages
  on_mesh(run, [](StageRank& rank) { rank.step(); });
  run.config.memory.recompute = {"hidden.0", "hidden.7"};
  const auto error = error_of<ConfigError>([&] { on_mesh(run, [](StageRank&) {}); });
  TANREN_EXPECT_CONTAINS(error,
                         "memory.recompute: no block matches 'hidden.7'; there are hidden.0");
  const std::vector<std::string> blocks = {"h.0", "h.1", "head"};
  MemoryPlan plan;
  plan.offload = {"h.*", "h.*.mlp", "*"};  // the second may match a block inside of another
  check_outermost_blocks(plan, blocks);
  plan.offload = {"tail*"};
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { check_outermost_blocks(plan, blocks); }),
                         "memory.offload: no block matches 'tail*'");
}

TEST(StageRanks, draw_other_numbers_of_torchs_generator_in_each_stage) {
  const Mesh mesh(2, 2);
  RunState run;
  run.seed = 5;
  std::vector<at::Tensor> draws;
  for (int rank = 0; rank < 4; ++rank) {
    reseed(run, Ranks(mesh.axes(rank), ParallelPlan{}), Draws::update);
    draws.push_back(at::rand({8}));
    for (int other = 0; other < rank; ++other) {
      EXPECT_FALSE(at::equal(draws.back(), draws[static_cast<size_t>(other)])) << rank << other;
    }
  }
}

TEST(StageRanks, forget_the_shapes_of_messages_when_other_parameters_are_trained) {
  Phase phase;
  phase.stage_shapes.sent[{2, 4, 8}] = {.sizes = {4, 8}, .strides = {8, 1}};
  phase.choose_parameters();
  EXPECT_TRUE(phase.stage_shapes.sent.empty());
}

TEST(StageRanks, evaluate_as_the_whole_model) {
  const StagedModel bert("bert", "fp32");
  const TokenData tokens(38);
  StagedRun of_bert = bert.run(2);
  of_bert.config.evaluate.metrics = {"accuracy"};
  StagedRun of_gpt2 = gpt2_run(tokens, 1, 2);
  of_gpt2.config.evaluate.metrics = {"perplexity", "accuracy"};
  for (StagedRun run : {of_bert, of_gpt2}) {
    SCOPED_TRACE(run.config.model.kind);
    run.config.evaluate.batch = 7;
    EvaluationReport whole;
    for (const int stages : {1, 3}) {
      run.stages = stages;
      on_mesh(run, [&](StageRank& rank) {
        const TensorMap tensors = rank.state.model_tensors();
        std::vector<at::Tensor> before;
        for (const auto& [name, tensor] : tensors) before.push_back(tensor.clone());
        rehearse_evaluation(rank.state, rank.parts, rank.data);
        const EvaluationReport report = evaluate(rank.state, rank.parts, rank.data);
        size_t i = 0;
        for (const auto& [name, tensor] : tensors) EXPECT_TRUE(at::equal(tensor, before[i++]));
        if (stages == 1) {
          if (rank.parts.ranks->world().is_first()) whole = report;
          return;
        }
        EXPECT_EQ(report.values, whole.values);
        EXPECT_EQ(report.samples, whole.samples);
        EXPECT_EQ(report.samples, rank.data.size());
        EXPECT_EQ(report.tokens, whole.tokens);
      });
    }
    EXPECT_EQ(whole.values.size(), 1 + run.config.evaluate.metrics.size());
  }
}

// Only the first stage is asked to stop; all stop after the eighth batch of 64.
TEST(StageRanks, stop_an_evaluation_behind_the_same_batch) {
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(1);
  run.stages = 3;
  run.config.evaluate.batch = 1;
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  const StagedRun whole = run;
  run.make_task = [&] {
    Task task = whole.task();
    task.predict = [&, predict = task.predict](const Batch& batch) {
      if (++calls == 3) stop = true;
      return predict(batch);
    };
    return task;
  };
  on_mesh(run, [&](StageRank& rank) {
    if (rank.state.stage->stage == 0) rank.parts.stop = &stop;
    const auto report = evaluate_unless_stopped(rank.state, rank.parts, rank.data, nullptr);
    EXPECT_FALSE(report.has_value());
  });
  EXPECT_EQ(calls, 3 * 8);
}

TEST(StageRanks, begin_with_the_owners_value_of_a_weight_of_two_stages) {
  const TokenData data(38);
  std::mutex mutex;
  std::vector<at::Tensor> weights;
  on_mesh(gpt2_run(data, 3, 2), [&](StageRank& rank) {
    at::Tensor weight = rank.state.task.module->named_parameters()[kTied];
    if (rank.state.stage->stage != 1) {
      weight.detach().add_(static_cast<double>(rank.parts.ranks->world().rank()));
    }
    begin_alike(rank.state, rank.parts);
    const std::lock_guard lock(mutex);
    if (rank.state.holds(kTied)) weights.push_back(weight.detach().clone());
  });
  ASSERT_EQ(weights.size(), 4U);
  const at::Tensor initial = gpt2_run(data, 1, 1).task().module->named_parameters()[kTied];
  for (const at::Tensor& weight : weights) {
    EXPECT_TRUE(at::equal(weight, initial.detach().to(at::kDouble)));
  }
}

TEST(StageRanks, find_a_weight_that_is_no_longer_the_same_on_both_its_stages) {
  const TokenData data(38);
  StagedRun run = gpt2_run(data, 3, 1);
  run.config.parallel.check_every = 1;
  const std::string error = error_of<CommError>([&] {
    on_mesh(run, [&](StageRank& rank) {
      rank.step();
      check_weights(rank.state, rank.parts);  // the same after an update
      if (rank.state.stage->stage == 2) {
        rank.state.model_tensors().at(kTied).view(-1)[5].add_(1e-9);
      }
      check_weights(rank.state, rank.parts);
    });
  });
  TANREN_EXPECT_CONTAINS(error,
                         "at step 1: transformer.wte.weight of rank 2 is no longer rank 0's");
}

TEST(StageRanks, with_another_cut_are_told_before_the_first_batch) {
  const TokenData data(38);
  const std::string error = error_of<ConfigError>([&] {
    on_mesh(gpt2_run(data, 2, 1), [&](StageRank& rank) {
      if (rank.state.stage->stage == 1) {
        auto other = std::make_shared<StagePlan>(*rank.state.stage);
        other->first_blocks[1] = "transformer.ln_f";
        rank.state.stage = other;
      }
      begin_alike(rank.state, rank.parts);
    });
  });
  TANREN_EXPECT_CONTAINS(error, "rank 1 has parallel.cut_at");
  TANREN_EXPECT_CONTAINS(error, "transformer.ln_f");
}

TEST(StageRanks, refuse_what_a_run_in_stages_cannot_have) {
  const StagedModel model("mlp", "fp32");
  const Task task = model.run(1).task();
  Plan plan;
  check_can_be_staged(task, plan);
  check_can_be_staged(Task{}, plan);  // another check reports missing phases
  Plan synchronised;
  synchronised.parallel.buffers = RankBuffers::synchronised;
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { check_can_be_staged(task, synchronised); }),
                         "synchronised");
  Plan estimated;
  estimated.average = {.kind = Averaging::swa, .buffers = AverageBuffers::estimate};
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { check_can_be_staged(task, estimated); }),
                         "estimate");
  Task two = task;
  two.phases.push_back(two.phases.front());
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { check_can_be_staged(two, plan); }),
                         "several phases or objectives");
}

}  // namespace
}  // namespace tanren::testing
