#include "tanren/train/run_state.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/testing.h"
#include "tanren/config/kinds.h"
#include "tanren/model/registry.h"
#include "tanren/ops/eight_bit.h"
#include "tanren/ops/memory_order.h"
#include "tanren/train/finite_weights.h"
#include "tanren/train/sharded_state.h"
#include "tanren/train/undo.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

// A model whose body and head belong to two objectives.
Task of_two_objectives() {
  ModelOptions options;
  options.kind = "convnet";
  options.channels = {4, 8};
  Task task = ModelRegistry().make(options, DataInfo{{1, 8, 8}, 3});
  task.phases[0].objectives = {{.name = "body", .terms = {}, .parameters = {"st*"}},
                               {.name = "head", .terms = {}, .parameters = {"head.*"}}};
  return task;
}

// For a task of two objectives as well as for one of the registry.
Plan plan_of(const OptimizerOptions& options) {
  Plan plan;
  plan.objectives.clear();
  for (const char* name : {"loss", "body", "head"}) {
    plan.objectives.emplace_back().name = name;
    plan.objectives.back().optimizer = options;
  }
  return plan;
}

// Issue 21: patterns that belong to one objective's parameters were refused by the other.
TEST(Objectives, take_patterns_of_the_whole_model_and_refuse_those_of_none) {
  const Task task = of_two_objectives();
  OptimizerOptions options;
  options.groups = {{{"head.*"}, 0.5, std::nullopt}, {{"stem.*"}, 0.25, std::nullopt}};
  options.state = "8bit";
  options.fp32_state = {"head.*"};
  const auto phases = make_phases(task, plan_of(with_defaults(options)));
  const auto scale_of = [&](size_t objective, const std::string& name) {
    for (const auto& group : phases[0].objectives[objective].plan.optimizer.groups) {
      if (group.parameters == std::vector<std::string>{name}) return *group.learning_rate_scale;
    }
    ADD_FAILURE() << name;
    return 0.0;
  };
  EXPECT_EQ(scale_of(0, "stem.conv.weight"), 0.25);
  EXPECT_EQ(scale_of(0, "stages.0.conv1.weight"), 1);
  EXPECT_EQ(scale_of(1, "head.weight"), 0.5);
  for (auto* patterns : {&options.groups[0].parameters, &options.fp32_state}) {
    const auto kept = *patterns;
    *patterns = {"haed.*"};
    TANREN_EXPECT_CONTAINS(
        testing::error_of<ConfigError>([&] { make_phases(task, plan_of(with_defaults(options))); }),
        "the pattern 'haed.*' matches no parameter");
    EXPECT_NO_THROW(make_phases(task, plan_of(with_defaults(options)), /*train=*/false));
    *patterns = kept;
  }
}

// A rank that holds a frozen part of a model.
TEST(RunStateTest, without_trained_parameters_keeps_and_restores_the_generators) {
  RunState run;
  run.task = of_two_objectives();
  run.phases = make_phases(run.task, plan_of(with_defaults(OptimizerOptions())));
  for (auto& objective : run.phases[0].objectives) objective.parameters.clear();
  const Undo undo(run, at::kCPU, /*with_generators=*/true);
  const State saved = run.run_state(at::kCPU);
  const at::Tensor drawn = at::rand({4});
  undo.restore_all();
  EXPECT_TRUE(at::equal(saved.tensors.at("generator.cpu"), generator_states(at::kCPU).at("cpu")));
  EXPECT_TRUE(at::equal(at::rand({4}), drawn));
}

// A plan without the task's objectives would ignore the config's options for them.
TEST(Objectives, that_the_plan_does_not_know_are_refused) {
  TANREN_EXPECT_CONTAINS(
      testing::error_of<ConfigError>([] { make_phases(of_two_objectives(), Plan()); }),
      "the plan has no objective body, it has loss");
}

TEST(Objectives, have_the_rates_of_layers_that_are_counted_over_the_whole_model) {
  const Task task = of_two_objectives();
  OptimizerOptions options;
  options.layer_decay = 0.5;
  options.layers = {"stem.*", "stages.{}.*", "head.*"};
  const auto phases = make_phases(task, plan_of(with_defaults(options)));
  const auto& head = phases[0].objectives[1].plan.optimizer.groups;
  ASSERT_FALSE(head.empty());
  for (const auto& group : head) EXPECT_EQ(*group.learning_rate_scale, 1);
  EXPECT_EQ(*phases[0].objectives[0].plan.optimizer.groups[0].learning_rate_scale, 0.125);
}

// As weights are tied in PyTorch: one tensor that two layers register.
TEST(Objectives, update_a_parameter_of_two_names_once) {
  Task task = of_two_objectives();
  const at::Tensor shared =
      make_phases(task, plan_of(with_defaults({})))[0].objectives[0].parameters.at(0).tensor;
  const auto twin = std::make_shared<torch::nn::Module>();
  twin->register_parameter("weight", shared);
  task.module->register_module("stages_twin", twin);
  const auto stage = std::make_shared<StagePlan>();
  stage->first_blocks = {"first", "second"};
  for (const auto& item : task.module->named_parameters()) stage->holders[item.key()] = {0};
  const std::shared_ptr<const StagePlan> plans[] = {nullptr, stage};
  for (const auto& held : plans) {
    size_t found = 0;
    const auto phases = make_phases(task, plan_of(with_defaults({})), /*train=*/true, held);
    for (const Objective& own : phases[0].objectives) {
      for (const NamedParameter& parameter : own.parameters) {
        if (parameter.tensor.is_same(twin->parameters()[0])) ++found;
      }
    }
    EXPECT_EQ(found, 1u) << (held == nullptr ? "alone" : "in stages");
  }
}

// A plan made by hand may leave the decay to the kind of optimizer.
TEST(Objectives, have_the_decay_of_the_kind_where_none_is_given) {
  const auto phases = make_phases(of_two_objectives(), plan_of({}));
  const double wanted = *with_defaults({}).weight_decay;
  ASSERT_GT(wanted, 0);
  int found = 0;
  for (const auto& group : phases[0].objectives[0].plan.optimizer.groups) {
    if (group.parameters[0] != "stages.0.conv1.weight") continue;
    EXPECT_EQ(*group.weight_decay, wanted);
    ++found;
  }
  EXPECT_EQ(found, 1);
}

// A weight that is the logarithm of 0 is minus infinity from the start.
TEST(RuinedWeights, are_worse_than_they_were_at_the_start) {
  RunState run;
  run.task = of_two_objectives();
  run.phases = make_phases(run.task, plan_of(with_defaults({})));
  const auto weight = run.phases[0].objectives[1].parameters[0].tensor.detach().view(-1);
  EXPECT_FALSE(is_ruined(worst_values(run), worst_values(run)));
  const auto finite = worst_values(run);
  weight[1].fill_(-INFINITY);
  const auto infinite = worst_values(run);
  EXPECT_TRUE(is_ruined(finite, infinite));
  EXPECT_FALSE(is_ruined(infinite, infinite));
  EXPECT_FALSE(is_ruined(infinite, finite));
  weight[0].fill_(NAN);
  EXPECT_TRUE(is_ruined(infinite, worst_values(run)));
}

Task with_channels_last_kernels() {
  at::manual_seed(4);
  ModelOptions options;
  options.kind = "convnet";
  options.channels = {16, 32};
  Task task = ModelRegistry().make(options, DataInfo{{1, 8, 8}, 3});
  for (auto& item : task.module->named_parameters()) {
    at::Tensor& tensor = item.value();
    if (tensor.dim() != 4) continue;
    tensor.set_data(tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
  return task;
}

// Ranks that shared packed state kept the moments of such kernels in fp32 before issue 21.
TEST(LoadRanges, packs_slices_that_were_kept_in_fp32) {
  const std::string kernel = "stages.1.conv2.weight";
  OptimizerOptions plain;
  const auto before = make_phases(with_channels_last_kernels(), plan_of(with_defaults(plain)));
  State kept;
  std::vector<StateSlice> slices;
  for (const NamedParameter& parameter : before[0].objectives[0].updated) {
    const int64_t all = parameter.tensor.numel(), half = (all + 1) / 2;
    for (const auto& [begin, end] : {std::pair{int64_t{0}, half}, {half, all}}) {
      if (begin == end) continue;
      slices.push_back({parameter.name + "@" + std::to_string(begin), parameter.name, begin, end,
                        parameter.tensor.sizes().vec(), parameter.tensor.strides().vec()});
    }
  }
  const State whole = before[0].objectives[0].optimizer->state();
  for (const auto& [name, tensor] : whole.tensors) {
    if (tensor.dim() > 0) at::Tensor(tensor).uniform_(0.01, 1);
    const size_t dot = name.rfind('.');
    for (const StateSlice& slice : slices) {
      if (slice.whole != name.substr(0, dot)) continue;
      kept.tensors.set(
          slice.name + name.substr(dot),
          tensor.dim() == 0 ? tensor : in_memory(tensor).slice(0, slice.begin, slice.end));
    }
  }
  for (const std::string state : {"8bit", "bf16"}) {
    OptimizerOptions packed;
    packed.state = state;
    auto phases = make_phases(with_channels_last_kernels(), plan_of(with_defaults(packed)));
    Objective& objective = phases[0].objectives[0];
    load_ranges(objective, "", StoredState(kept, slices));
    const State loaded = objective.optimizer->state();
    for (const std::string moment : {"exp_avg", "exp_avg_sq"}) {
      const std::string key = kernel + "." + moment;
      const at::Tensor values = whole.tensors.at(key);
      if (state == "bf16") {
        EXPECT_TRUE(at::equal(loaded.tensors.at(key), values.to(at::kBFloat16))) << moment;
        continue;
      }
      const at::Tensor codes = at::empty_like(values, at::kByte);
      const at::Tensor scales = at::empty({(values.numel() + 255) / 256});
      to_eight_bit(in_memory(values), moment == "exp_avg", 256, codes, scales);
      EXPECT_TRUE(at::equal(loaded.tensors.at(key + "_codes"), codes)) << moment;
      EXPECT_TRUE(at::equal(loaded.tensors.at(key + "_scales"), scales)) << moment;
    }
  }
}

}  // namespace
}  // namespace tanren
