// Expected values are from 20 uninterrupted updates of torch.optim
// (tests/fixtures/make/torch_state_fixtures.py).
#include "tanren/interop/torch_state.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/config/read_config.h"
#include "tanren/config/write_config.h"
#include "tanren/formats/pt_file.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/torch_numbers.h"
#include "tanren/interop/torch_optimizer.h"
#include "tanren/model/registry.h"
#include "tanren/ops/eight_bit.h"
#include "tanren/run/run.h"
#include "tanren/train/build.h"
#include "tests/support/gan.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = fs::path(TANREN_SOURCE_DIR) / "tests/fixtures/torch_state";

// Config of the run that continues `kind`.pt with updates 11 to 20.
RunConfig config_of(const std::string& kind) {
  RunConfig config;
  config.run.steps = 10;
  config.run.threads = 1;
  config.model.kind = "mlp";
  config.model.hidden = {8};
  config.model.init_from = (kFixtures / (kind + ".pt")).string();
  config.optimizer.init_from = config.model.init_from;
  config.data.train.kind = "tensors";
  config.data.train.path = (kFixtures / "rows.safetensors").string();
  config.data.shuffle = false;
  config.data.workers = 0;
  config.batch.global_batch = "5";
  config.precision.mode = "fp32";
  config.checkpoint.every = 5;
  auto& optimizer = config.optimizer;
  optimizer.kind = kind;
  optimizer.learning_rate = kind == "sgd" ? 0.1 : 0.01;
  optimizer.weight_decay = 0;
  if (kind == "adamw") {
    optimizer.weight_decay = 0.1;
    optimizer.decay_norms_and_biases = false;
    optimizer.beta1 = 0.8;
    optimizer.beta2 = 0.99;
  }
  optimizer.amsgrad = kind == "adam";
  if (kind == "sgd") {
    optimizer.momentum = 0.9;
    optimizer.dampening = 0.1;
  }
  return config;
}

class TorchState : public ::testing::Test {
 protected:
  RunOutput go(const RunConfig& config, const std::string& folder) {
    RunInput input;
    input.config = config;
    input.folder = folder_.path() / folder;
    return run(input, ModelRegistry());
  }
  std::string refusal(const RunConfig& config) {
    try {
      plan_only(config, ModelRegistry());
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }
  Snapshot last(const std::string& folder) {
    return read_checkpoint(*latest_checkpoint(folder_.path() / folder / "checkpoints"));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TorchState, what_does_not_fit_is_refused_with_the_way_out) {
  auto config = config_of("adamw");
  config.optimizer.init_from = (kFixtures / "expected.safetensors").string();
  TANREN_EXPECT_CONTAINS(refusal(config), "it holds no optimizer (no param_groups)");
  config = config_of("adamw");
  config.optimizer.decay_norms_and_biases = true;  // no group of torch's fits this
  TANREN_EXPECT_CONTAINS(refusal(config),
                         "a group of 2 parameters with weight decay 0.1 fits none");
  config = config_of("sgd");
  config.optimizer.init_from = (kFixtures / "adam.pt").string();
  TANREN_EXPECT_CONTAINS(refusal(config), "without momentum_buffer; set optimizer.kind");
  config = config_of("sgd");
  config.model.hidden = {8, 8};
  config.model.init_from.clear();
  TANREN_EXPECT_CONTAINS(refusal(config), "fits none of this model");
  config = config_of("adam");
  config.model.kind = "convnet";
  config.data.train.kind = "synthetic";
  config.data.train.fields = {"inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 2]"};
  config.data.train.samples = 8;
  config.model.init_from.clear();
  TANREN_EXPECT_CONTAINS(refusal(config), "state of hidden.0.weight, which the model has not");
  config.optimizer.kind = "lion";
  TANREN_EXPECT_CONTAINS(refusal(config), "lion does not travel");
}

TEST_F(TorchState, ten_updates_in_torch_and_ten_here_are_twenty_in_torch) {
  const auto expected = read_safetensors(kFixtures / "expected.safetensors").tensors;
  for (const std::string kind : {"adamw", "adam", "sgd"}) {
    SCOPED_TRACE(kind);
    go(config_of(kind), kind);
    for (const auto& [name, tensor] : last(kind).model.tensors) {
      const at::Tensor& want = expected.at(kind + "." + name);
      EXPECT_LT(((tensor - want).norm() / want.norm()).item<double>(), 1e-6) << name;
    }
    // Without the state the result differs.
    auto fresh = config_of(kind);
    fresh.optimizer.init_from.clear();
    go(fresh, kind + "-fresh");
    const auto other = last(kind + "-fresh").model.tensors.at("head.weight");
    const at::Tensor& want = expected.at(kind + ".head.weight");
    EXPECT_GT(((other - want).norm() / want.norm()).item<double>(), 1e-3);
  }
}

TEST_F(TorchState, takes_apexs_loss_scale_with_the_optimizer) {
  auto config = config_of("adamw");
  config.optimizer.init_from = (kFixtures / "amp.pt").string();
  config.run.steps = 1;
  const auto scale_of = [&](const std::string& folder) {
    const auto& values = last(folder).run.values;
    return std::pair(std::get<double>(values.at("objective.train.loss.scaler.scale")),
                     std::get<int64_t>(values.at("objective.train.loss.scaler.quiet_steps")));
  };
  for (const std::string level : {"", "O1", "O2"}) {
    config.precision.mode = "fp16";
    config.precision.level = level;
    go(config, "fp16" + level);
    EXPECT_EQ(scale_of("fp16" + level), std::pair(32768.0, int64_t{13})) << level;
  }
  config.precision.mode = "bf16";
  config.precision.level = "O2";
  go(config, "bf16");
  EXPECT_EQ(scale_of("bf16").first, 1);
  const auto taken = read_optimizer_start(
      build_task(config, ModelRegistry(), *open_datasets(config.data, DatasetRegistry()).train),
      config);
  ASSERT_EQ(taken.lines.size(), 1u);
  TANREN_EXPECT_CONTAINS(taken.lines[0].reason,
                         "loss scale 32768, 12 updates without overflow (for a dynamic one)");
}

TEST_F(TorchState, the_plan_says_what_was_taken_and_what_differs) {
  auto config = config_of("adam");
  config.optimizer.learning_rate = 0.02;
  std::string told;
  for (const auto& line : plan_only(config, ModelRegistry()).lines) {
    if (line.key == "optimizer_state") told = line.reason;
  }
  TANREN_EXPECT_CONTAINS(told, "state of 4 of 4 parameters from ");
  TANREN_EXPECT_CONTAINS(told, "adam.pt, 10 updates; lr 0.01 there, 0.02 here");
}

TEST_F(TorchState, a_resumed_run_takes_its_own_state_and_not_the_files_again) {
  const auto config = config_of("adamw");
  go(config, "whole");
  auto first = config;
  first.run.stop_after = 4;
  go(first, "parts");
  go(config, "parts");
  const auto one = last("whole"), other = last("parts");
  for (const auto& [name, tensor] : one.optimizer.tensors) {
    EXPECT_TRUE(at::equal(tensor, other.optimizer.tensors.at(name))) << name;
  }
  for (const auto& [name, tensor] : one.model.tensors) {
    EXPECT_TRUE(at::equal(tensor, other.model.tensors.at(name))) << name;
  }
}

TEST_F(TorchState, what_is_written_for_torch_is_read_back_to_the_same_state) {
  for (const std::string kind : {"adamw", "adam", "sgd"}) {
    SCOPED_TRACE(kind);
    auto config = config_of(kind);
    config.optimizer.init_from.clear();
    config.model.init_from.clear();
    go(config, kind);
    const auto file = folder_.path() / (kind + ".pt");
    write_torch_checkpoint(*latest_checkpoint(folder_.path() / kind / "checkpoints"), file,
                           ModelRegistry().kinds());
    const auto torch = torch_optimizers_of(read_weights(file), file.string()).at(0);
    EXPECT_EQ(torch.groups.size(), kind == "adamw" ? 2u : 1u);
    EXPECT_EQ(std::get<double>(torch.groups[0].options.at("lr")), config.optimizer.learning_rate);
    config.optimizer.init_from = config.model.init_from = file.string();
    config.run.steps = 1;
    config.optimizer.learning_rate = 1e-30;
    config.schedule.kind = "constant";
    go(config, kind + "-on");
    const auto before = last(kind), after = last(kind + "-on");
    for (const auto& [name, tensor] : before.optimizer.tensors) {
      if (!name.ends_with(".step")) continue;
      EXPECT_EQ(after.optimizer.tensors.at(name).item<float>(), tensor.item<float>() + 1) << name;
    }
    EXPECT_EQ(value_of<int64_t>(read_weights(file).content, "step"), 10);
  }
}

// Issue 21: the moments of packed parameters were missing (8bit) or flat (bf16) in the written
// file.
TEST_F(TorchState, packed_moments_are_written_as_torch_keeps_them_and_taken_over_from_it) {
  const auto moments_of = [&](const std::string& kind, const char* state) {
    auto config = config_of(kind);
    config.optimizer.init_from.clear();
    config.model.init_from.clear();
    config.model.hidden = {1024};  // its kernel is packed, its bias is not
    config.optimizer.amsgrad = false;
    config.optimizer.state = state;
    const std::string name = kind + "-" + state;
    go(config, name);
    const auto file = folder_.path() / (name + ".pt");
    write_torch_checkpoint(*latest_checkpoint(folder_.path() / name / "checkpoints"), file,
                           ModelRegistry().kinds());
    return torch_optimizers_of(read_weights(file), file.string()).at(0);
  };
  const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>();
  };
  for (const std::string kind : {"adamw", "adam"}) {
    const auto exact = moments_of(kind, "fp32");
    for (const char* state : {"8bit", "bf16"}) {
      SCOPED_TRACE(kind + " " + state);
      const auto packed = moments_of(kind, state);
      const Snapshot saved = last(kind + "-" + state);
      // The moment that the run holds for the parameter of this shape; all shapes differ.
      const auto held = [&](const at::Tensor& like, const std::string& moment) {
        for (const auto& [name, tensor] : saved.model.tensors) {
          if (tensor.sizes() != like.sizes()) continue;
          for (const auto& [key, kept] : saved.optimizer.tensors) {
            if (key.ends_with(name + "." + moment)) return kept.to(at::kFloat).view(like.sizes());
            if (!key.ends_with(name + "." + moment + "_codes")) continue;
            const std::string scales = key.substr(0, key.size() - 6) + "_scales";
            return from_eight_bit(kept, saved.optimizer.tensors.at(scales), moment == "exp_avg",
                                  256)
                .view(like.sizes());
          }
        }
        return at::Tensor();
      };
      ASSERT_EQ(packed.state.size(), 4u);
      for (const auto& [number, kept] : packed.state) {
        const auto& want = exact.state.at(number).tensors;
        ASSERT_EQ(kept.tensors.size(), 3u);
        for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
          const at::Tensor& tensor = kept.tensors.at(moment);
          EXPECT_EQ(tensor.sizes(), want.at(moment).sizes());
          EXPECT_EQ(tensor.scalar_type(), at::kFloat);
          EXPECT_TRUE(at::equal(tensor, held(tensor, moment))) << moment << " of " << number;
        }
        EXPECT_EQ(kept.tensors.at("step").item<float>(), 10);
      }
      // A run with packed state starts from torch's state and keeps its values.
      auto config = config_of(kind);
      config.model.hidden = {1024};
      config.optimizer.amsgrad = false;
      config.optimizer.init_from = config.model.init_from =
          (folder_.path() / (kind + "-fp32.pt")).string();
      config.optimizer.state = state;
      config.optimizer.beta1 = 0.999;
      config.optimizer.beta2 = 0.99999;  // one more update changes little
      config.run.steps = 1;
      const std::string name = kind + "-" + state + "-on";
      go(config, name);
      const auto file = folder_.path() / (name + ".pt");
      write_torch_checkpoint(*latest_checkpoint(folder_.path() / name / "checkpoints"), file,
                             ModelRegistry().kinds());
      const auto after = torch_optimizers_of(read_weights(file), file.string()).at(0);
      for (const auto& [number, kept] : after.state) {
        for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
          EXPECT_LT(apart(kept.tensors.at(moment), exact.state.at(number).tensors.at(moment)), 0.1)
              << moment << " of " << number;
        }
        EXPECT_EQ(kept.tensors.at("step").item<float>(), 11);
      }
    }
  }
}

TEST_F(TorchState, frozen_parameters_travel_without_state) {
  auto config = config_of("adamw");
  config.optimizer.init_from.clear();
  config.model.freeze = {"hidden.*"};
  go(config, "frozen");
  const auto file = folder_.path() / "frozen.pt";
  write_torch_checkpoint(*latest_checkpoint(folder_.path() / "frozen/checkpoints"), file,
                         ModelRegistry().kinds());
  const auto torch = torch_optimizers_of(read_weights(file), file.string()).at(0);
  EXPECT_EQ(torch.groups[0].names, (std::vector<std::string>{"hidden.0.weight", "head.weight"}));
  EXPECT_EQ(torch.state.size(), 2u);
  config.optimizer.init_from = file.string();
  go(config, "frozen-on");  // a run with the same freeze can read the file
}

// A GAN: in the file, the optimizer of each network under a name of its own.
class TorchStateOfSeveral : public TorchState {
 protected:
  // The critic, which is first, has SGD, the generator Adam.
  RunConfig config_with(const std::vector<std::string>& sets) {
    auto config = testing::gan_config("fp16");
    config.optimizer.kind = "sgd";
    config.optimizer.momentum = 0.9;
    std::vector<std::string> all = {"objectives.generator.optimizer.kind=adam",
                                    "objectives.generator.optimizer.beta1=0.5"};
    all.insert(all.end(), sets.begin(), sets.end());
    return parse_config(to_toml(config), "gan.toml", kFixtures, all, {"gan"});
  }
  static std::string start_of(const std::string& prefix, const std::string& file) {
    return prefix + "optimizer.init_from=" + (kFixtures / file).string();
  }
  std::string refusal_of(const std::vector<std::string>& sets) {
    try {
      read_optimizer_start(testing::one_forward_gan(), config_with(sets));
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }
};

TEST_F(TorchStateOfSeveral, each_objective_takes_the_optimizer_that_fits) {
  const auto config =
      config_with({start_of("", "gan.pt"), start_of("objectives.generator.", "gan.pt")});
  for (const auto& make : {testing::one_forward_gan, testing::two_phase_gan}) {
    testing::TinyRun run(config, nullptr, make(1, false));
    const auto start = read_optimizer_start(run.state.task, config);
    start_optimizer(run.state, start);
    const auto file = read_weights(kFixtures / "gan.pt").content.tensors;
    const auto expect = [&](const Objective& objective, const std::string& ours,
                            const std::string& theirs) {
      const at::Tensor state = objective.optimizer->state().tensors.at(ours);
      EXPECT_TRUE(at::equal(state, file.at(theirs).to(state.scalar_type()))) << ours;
    };
    const Objective& critic = run.state.phases.front().objectives.front();
    const Objective& generator = run.state.phases.back().objectives.back();
    for (const char* moment : {"exp_avg", "exp_avg_sq", "step"}) {
      expect(generator, "generator.weight." + std::string(moment),
             "optimizerG.state.0." + std::string(moment));
      expect(generator, "generator.bias." + std::string(moment),
             "optimizerG.state.1." + std::string(moment));
    }
    expect(critic, "critic_hidden.weight.momentum_buffer", "optimizerD.state.0.momentum_buffer");
    expect(critic, "critic_score.bias.momentum_buffer", "optimizerD.state.3.momentum_buffer");
    EXPECT_EQ(critic.scaler.scale(), 32768);
    EXPECT_EQ(generator.scaler.scale(), 8192);
    ASSERT_EQ(start.lines.size(), 2u);
    EXPECT_EQ(start.lines[0].key, "objectives.critic.optimizer_state");
    TANREN_EXPECT_CONTAINS(start.lines[0].reason, "state of 4 of 4 parameters from ");
    TANREN_EXPECT_CONTAINS(start.lines[0].reason, "loss scale 32768, 12 updates");
    EXPECT_EQ(start.lines[1].key, "objectives.generator.optimizer_state");
    TANREN_EXPECT_CONTAINS(start.lines[1].reason, "state of 2 of 2 parameters from ");
    TANREN_EXPECT_CONTAINS(start.lines[1].reason, "3 updates");
  }
}

TEST_F(TorchStateOfSeveral, one_objective_starts_from_a_file_of_its_own) {
  const auto config = config_with({start_of("objectives.generator.", "gan_generator.pt")});
  testing::TinyRun run(config, nullptr, testing::one_forward_gan());
  const auto start = read_optimizer_start(run.state.task, config);
  start_optimizer(run.state, start);
  ASSERT_EQ(start.lines.size(), 1u);
  EXPECT_EQ(start.lines[0].key, "objectives.generator.optimizer_state");
  const auto file = read_weights(kFixtures / "gan_generator.pt").content.tensors;
  const auto& objectives = run.state.phases.front().objectives;
  // The file's names lack "generator.", which all names of the objective have.
  EXPECT_TRUE(at::equal(objectives[1].optimizer->state().tensors.at("generator.bias.exp_avg"),
                        file.at("optimizer.state.1.exp_avg")));
  for (const auto& [name, tensor] : objectives[0].optimizer->state().tensors) {
    EXPECT_EQ(tensor.abs().sum().item<double>(), 0) << name;
  }
}

// Names without a part of the prefix that all parameters of the objective share.
TEST_F(TorchStateOfSeveral, names_may_lack_any_part_of_a_shared_prefix) {
  const at::Tensor one = at::zeros({2}), two = at::zeros({3});
  const std::vector<NamedParameter> own = {{"generator.model.1.weight", one},
                                           {"generator.model.2.weight", two}};
  for (const std::string prefix : {"generator.model.", "model.", ""}) {
    TorchOptimizer optimizer;
    optimizer.groups.push_back({{7, 4}, {prefix + "2.weight", prefix + "1.weight"}, {}});
    const auto numbers = numbered(optimizer, own, {}, {}, {}, "a.pt");
    EXPECT_EQ(numbers.at(7).name, "generator.model.2.weight") << prefix;
    EXPECT_EQ(numbers.at(4).name, "generator.model.1.weight") << prefix;
  }
}

TEST_F(TorchStateOfSeveral, a_group_without_options_is_no_crash) {
  PtValue group = PtValue::dict();
  group.add(Value(std::string("params")), PtValue::list({PtValue::of(Value(int64_t{0}))}));
  PtValue optimizer = PtValue::dict(), file = PtValue::dict();
  optimizer.add(Value(std::string("state")), PtValue::dict());
  optimizer.add(Value(std::string("param_groups")), PtValue::list({group}));
  file.add(Value(std::string("optimizer")), optimizer);
  write_pt(folder_.path() / "bare.pt", file);
  TANREN_EXPECT_CONTAINS(refusal_of({"objectives.generator.optimizer.init_from=" +
                                     (folder_.path() / "bare.pt").string()}),
                         "a group of 1 parameters with weight decay 0 fits none");
}

TEST_F(TorchStateOfSeveral, what_fits_none_or_several_is_refused) {
  TANREN_EXPECT_CONTAINS(refusal_of({"optimizer.kind=adam", start_of("", "gan.pt")}),
                         "none of its 2 optimizers fits the objective critic (optimizerD: ");
  TANREN_EXPECT_CONTAINS(refusal_of({start_of("objectives.critic.", "gan_generator.pt")}),
                         ", which the model has not");
  // Two objectives for which the file has one optimizer.
  auto twins = testing::one_forward_gan();
  auto& specs = twins.phases.front().objectives;
  specs[0].parameters = {"generator.weight"};
  specs[1].parameters = {"generator.bias"};
  PtValue one = PtValue::dict();
  TorchOptimizer empty;
  empty.groups.push_back({{0}, {}, {{"lr", 0.1}, {"weight_decay", 0.0}}});
  one.add(Value(std::string("optimizerA")), to_pt(empty));
  empty.groups.front().parameters = {0, 1};
  one.add(Value(std::string("optimizerB")), to_pt(empty));
  write_pt(folder_.path() / "one.pt", one);
  const auto shared = config_with({"optimizer.init_from=" + (folder_.path() / "one.pt").string()});
  try {
    read_optimizer_start(twins, shared);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    TANREN_EXPECT_CONTAINS(error.what(), "its optimizer optimizerA fits both objectives");
  }
  const auto file = read_weights(kFixtures / "gan.pt");
  const auto same = torch_optimizers_of(file, "gan.pt").at(1);
  PtValue both = PtValue::dict();
  both.add(Value(std::string("optimizerA")), to_pt(same));
  both.add(Value(std::string("optimizerB")), to_pt(same));
  const fs::path path = folder_.path() / "both.pt";
  write_pt(path, both);
  TANREN_EXPECT_CONTAINS(
      refusal_of({"objectives.generator.optimizer.init_from=" + path.string()}),
      "its optimizers optimizerA, optimizerB all fit the objective generator; save each in a file "
      "of its own, for objectives.generator.optimizer.init_from");
}

}  // namespace
}  // namespace tanren
