// A checkpoint of any layout loads into any other: the run goes on as if it had never stopped.
#include "tests/stages/staged_models.h"

#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/interop/export.h"
#include "tanren/run/prepare.h"
#include "tanren/train/take_over.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

struct Layout {
  const char* name;
  int stages, replicas;
  int64_t zero;
  bool is_bitwise;  // sums the gradients as the whole model on one rank does
};

constexpr Layout kPlain = {"plain", 1, 1, 0, true};
constexpr Layout kTwoStages = {"2 stages", 2, 1, 0, true};
constexpr Layout kMesh = {"3 stages, 2 replicas", 3, 2, 0, false};
constexpr Layout kShared = {"2 stages, 2 replicas, zero 1", 2, 2, 1, false};
constexpr std::array kLayouts = {kPlain, kTwoStages, kMesh, kShared};

StagedRun laid_out(StagedRun run, const Layout& layout) {
  run.stages = layout.stages;
  run.replicas = layout.replicas;
  run.config.parallel.zero = layout.zero;
  return run;
}

// Twelve samples in microbatches of four, whatever the layout.
StagedRun run_of(const StagedModel& model) {
  StagedRun run = model.run(/*replicas=*/1);
  run.config.batch.global_batch = "12";
  return run;
}

StagedRun tied_run(const TokenData& data) {
  StagedRun run{.config = ranks_config("fp64"), .data = data};
  run.config.batch.microbatch = 4;
  run.config.average.kind = "ema";
  return run;
}

void begin_at_cursor(StageRank& rank) {
  rank.batches = std::make_unique<BatchStream>(make_loader(rank.state, rank.parts, rank.data),
                                               *rank.parts.ranks);
}

void resume(StageRank& rank, const fs::path& checkpoint) {
  load_checkpoint(rank.state, checkpoint, rank.parts);
  begin_at_cursor(rank);
}

// Resumes from the folder's newest checkpoint, if there is one, and saves at the end. Returns the
// losses.
std::vector<double> go_on(const StagedRun& run, const fs::path& folder, int updates) {
  std::vector<double> losses;
  on_mesh(run, [&](StageRank& rank) {
    if (const auto newest = latest_checkpoint(folder)) resume(rank, *newest);
    for (int i = 0; i < updates; ++i) {
      const StepReport report = rank.step();
      if (rank.parts.ranks->world().is_first()) losses.push_back(report.objectives.at(0).loss);
    }
    save_checkpoint(rank.state, rank.parts, {.train = rank.data, .checkpoints = folder});
  });
  return losses;
}

// `tolerance`: of the norm of all; 0: bitwise.
void expect_same_state(const TensorMap& tensors, const TensorMap& expected, double tolerance) {
  ASSERT_EQ(tensors.size(), expected.size());
  double distance = 0, norm = 0;
  auto own = tensors.begin();
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(own->first, name);
    ASSERT_EQ(own->second.sizes(), tensor.sizes()) << name;
    if (tolerance == 0 || tensor.dim() == 0) {
      EXPECT_TRUE(at::equal(own->second, tensor)) << name;
    } else {
      distance += (own->second - tensor).square().sum().item<double>();
      norm += tensor.square().sum().item<double>();
    }
    ++own;
  }
  EXPECT_LE(std::sqrt(distance), tolerance * std::sqrt(norm));
}

// Sorts by name, because an optimizer's entries are in the order of its parts.
TensorMap sorted(const TensorMap& tensors) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) by_name.emplace(name, tensor);
  TensorMap result;
  for (const auto& [name, tensor] : by_name) result.set(name, tensor);
  return result;
}

void expect_same_snapshot(const fs::path& folder, const fs::path& expected, double tolerance) {
  const Snapshot one = read_checkpoint(*latest_checkpoint(folder)),
                 other = read_checkpoint(*latest_checkpoint(expected));
  expect_same_state(one.model.tensors, other.model.tensors, tolerance);
  expect_same_state(one.average.tensors, other.average.tensors, tolerance);
  EXPECT_EQ(one.average.values, other.average.values);
  const State joined = StoredState(one.optimizer, one.slices).joined(),
              plain = StoredState(other.optimizer, other.slices).joined();
  expect_same_state(sorted(joined.tensors), sorted(plain.tensors), tolerance);
  EXPECT_EQ(joined.values, plain.values);
  EXPECT_EQ(value_of<int64_t>(one.run, "attempt"), value_of<int64_t>(other.run, "attempt"));
  EXPECT_EQ(value_of<int64_t>(one.run, "consumed"), value_of<int64_t>(other.run, "consumed"));
}

void expect_any_layout_goes_on_as_any_other(const StagedRun& run, bool is_bitwise) {
  const TemporaryFolder folder;
  const fs::path undisturbed = folder.path() / "undisturbed", moved = folder.path() / "moved";
  const auto whole = go_on(laid_out(run, kPlain), undisturbed, 6);
  for (const Layout& first : kLayouts) {
    const fs::path saved = folder.path() / first.name;
    const auto before = go_on(laid_out(run, first), saved, 3);
    for (const Layout& then : kLayouts) {
      SCOPED_TRACE(std::string(first.name) + ", then " + then.name);
      const double tolerance = is_bitwise && first.is_bitwise && then.is_bitwise ? 0 : 1e-10;
      fs::remove_all(moved);
      fs::copy(saved, moved, fs::copy_options::recursive);
      auto losses = before;
      for (const double loss : go_on(laid_out(run, then), moved, 3)) losses.push_back(loss);
      ASSERT_EQ(losses.size(), whole.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_LE(std::abs(losses[i] - whole[i]), tolerance * std::abs(whole[i])) << i + 1;
      }
      expect_same_snapshot(moved, undisturbed, tolerance);
    }
  }
}

TEST(StageCheckpoints, of_any_layout_go_on_in_any_other) {
  const StagedModel model("bert", "fp64");
  StagedRun run = run_of(model);
  run.config.average.kind = "ema";
  expect_any_layout_goes_on_as_any_other(run, /*is_bitwise=*/true);
}

TEST(StageCheckpoints, with_a_weight_in_two_stages_go_on_in_any_layout) {
  const TokenData data(38);
  expect_any_layout_goes_on_as_any_other(tied_run(data), /*is_bitwise=*/false);
}

struct Kind {
  const char* name;
  std::function<void(RunConfig&)> set;
};

// Moves to two stages and back. The state is kept for whole parameters, packed, as copies of 16-bit
// weights, or not at all.
TEST(StageCheckpoints, hold_the_state_of_any_optimizer) {
  const std::vector<Kind> kinds = {
      {"adafactor", [](RunConfig& config) { config.optimizer.kind = "adafactor"; }},
      {"muon", [](RunConfig& config) { config.optimizer.kind = "muon"; }},
      {"sgd", [](RunConfig& config) { config.optimizer.kind = "sgd"; }},
      {"8bit", [](RunConfig& config) { config.optimizer.state = "8bit"; }},
      {"O2", [](RunConfig& config) { set_precision(config, "O2 bf16"); }},
      {"the first stage frozen",
       [](RunConfig& config) {
         config.model.freeze = {"bert.embeddings.*", "bert.encoder.layer.0.*"};
       }},
  };
  const StagedModel model("bert", "fp32");
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const TemporaryFolder folder;
    StagedRun run = run_of(model);
    kind.set(run.config);
    const auto whole = go_on(laid_out(run, kPlain), folder.path() / "whole", 4);
    std::vector<double> losses;
    for (const Layout& layout : {kPlain, kTwoStages, kTwoStages, kPlain}) {
      losses.push_back(go_on(laid_out(run, layout), folder.path() / "moved", 1).at(0));
    }
    EXPECT_EQ(losses, whole);
    expect_same_snapshot(folder.path() / "moved", folder.path() / "whole", 0);
  }
}

TEST(StageCheckpoints, hold_statistics_in_any_layout_of_memory) {
  const StagedModel model("convnet", "fp32");
  const TemporaryFolder folder;
  StagedRun run = run_of(model);
  const auto whole = go_on(laid_out(run, kPlain), folder.path() / "whole", 3);
  std::vector<double> losses;
  for (const Layout& layout : {kTwoStages, kPlain, kTwoStages}) {
    losses.push_back(go_on(laid_out(run, layout), folder.path() / "moved", 1).at(0));
  }
  EXPECT_EQ(losses, whole);
  expect_same_snapshot(folder.path() / "moved", folder.path() / "whole", 0);
}

std::set<std::string> files_of(const fs::path& step) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(step)) names.insert(entry.path().filename());
  return names;
}

TEST(StageCheckpoints, have_a_file_of_each_stage_and_of_each_rank_that_shares_state) {
  const TokenData data(38);
  const TemporaryFolder folder;
  const std::set<std::string> common = {"COMPLETE", "config.toml",        "manifest.json",
                                        "plan.txt", "random.safetensors", "state.json"};
  const auto files = [&](const Layout& layout) {
    const fs::path place = folder.path() / layout.name;
    go_on(laid_out(tied_run(data), layout), place, 1);
    std::set<std::string> own;
    for (const std::string& name : files_of(*latest_checkpoint(place))) {
      if (common.count(name) == 0) own.insert(name);
    }
    return own;
  };
  EXPECT_EQ(files(kPlain), (std::set<std::string>{"average.safetensors", "model.safetensors",
                                                  "optimizer.safetensors"}));
  EXPECT_EQ(files(kShared),
            (std::set<std::string>{
                "average-00000-of-00002.safetensors", "average-00001-of-00002.safetensors",
                "average.safetensors.index.json", "model-00000-of-00002.safetensors",
                "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                "optimizer-00000-of-00004.safetensors", "optimizer-00001-of-00004.safetensors",
                "optimizer-00002-of-00004.safetensors", "optimizer-00003-of-00004.safetensors"}));
  const auto of_mesh = files(kMesh);
  EXPECT_EQ(of_mesh.size(), 3U * 3 + 2);
  EXPECT_EQ(of_mesh.count("optimizer-00002-of-00003.safetensors"), 1U);
  // Only the owner's files hold the weight that two stages share.
  const fs::path step = *latest_checkpoint(folder.path() / kMesh.name);
  for (const std::string kind : {"model", "average"}) {
    for (const int part : {0, 1, 2}) {
      const auto file = step / (kind + "-0000" + std::to_string(part) + "-of-00003.safetensors");
      EXPECT_EQ(read_safetensors(file).tensors.contains("transformer.wte.weight"), part == 0);
    }
  }
  // As `tanren convert` and model.init_from read a step folder.
  expect_same_state(read_weights(step).content.tensors, read_checkpoint(step).model.tensors, 0);
}

// Tensors of other stages have no memory here: to read one is an error.
TEST(StageCheckpoints, are_read_where_a_stage_holds_them_alone) {
  const TokenData data(38);
  const TemporaryFolder folder;
  go_on(laid_out(tied_run(data), kPlain), folder.path(), 1);
  const Snapshot whole = read_checkpoint(*latest_checkpoint(folder.path()));
  on_mesh(laid_out(tied_run(data), kMesh), [&](StageRank& rank) {
    const auto held = [&](const TensorMap& tensors, const std::string& start) {
      TensorMap result;
      for (const auto& [name, tensor] : tensors) {
        const size_t end = start.empty() ? std::string::npos : name.rfind('.');
        const std::string of = name.substr(start.size(), end - start.size());
        const bool is_held = rank.state.stage->holds(start.empty() ? name : of);
        result.set(name, is_held ? tensor : at::empty(tensor.sizes(), at::kMeta));
      }
      return result;
    };
    const State model{held(whole.model.tensors, ""), whole.model.values};
    const State optimizer{held(whole.optimizer.tensors, "train.loss."), whole.optimizer.values};
    const State average{held(whole.average.tensors, ""), whole.average.values};
    rank.state.load(rank.parts.device, model, optimizer, whole.run, average);
    for (const auto& [name, tensor] : rank.state.model_tensors()) {
      EXPECT_TRUE(at::equal(tensor, whole.model.tensors.at(name))) << name;
    }
    for (const auto& [name, tensor] : rank.state.average_state().tensors) {
      EXPECT_TRUE(at::equal(tensor, whole.average.tensors.at(name))) << name;
    }
    for (const auto& [name, tensor] : rank.state.optimizer_state().tensors) {
      EXPECT_TRUE(at::equal(tensor, whole.optimizer.tensors.at(name))) << name;
    }
  });
}

TEST(StageCheckpoints, are_taken_over_by_a_fork_of_any_layout) {
  const TokenData data(38);
  const TemporaryFolder folder;
  const fs::path undisturbed = folder.path() / "undisturbed";
  const auto whole = go_on(laid_out(tied_run(data), kPlain), undisturbed, 5);
  go_on(laid_out(tied_run(data), kMesh), folder.path() / "saved", 3);
  const Snapshot saved = read_checkpoint(*latest_checkpoint(folder.path() / "saved"));
  const TakenParts everything{.objectives = {{"train.loss", {true, true, true, true}}},
                              .flags = true,
                              .position = true,
                              .random = true,
                              .evaluations = true};
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    on_mesh(laid_out(tied_run(data), layout), [&](StageRank& rank) {
      const auto left = take_over(rank.state, rank.parts.device, saved, everything, FreezePlan());
      EXPECT_TRUE(left.empty()) << left.front();
      begin_at_cursor(rank);
      for (size_t i = 3; i < whole.size(); ++i) {
        const double loss = rank.step().objectives.at(0).loss;
        if (!rank.parts.ranks->world().is_first()) continue;
        EXPECT_LE(std::abs(loss - whole[i]), 1e-10 * std::abs(whole[i])) << i + 1;
      }
    });
  }
}

TEST(StageCheckpoints, are_exported_as_the_whole_model) {
  const TokenData data(38);
  for (const bool averaged : {false, true}) {
    const TemporaryFolder folder;
    StagedRun run = laid_out(tied_run(data), kMesh);
    run.config.average.evaluate = averaged;
    go_on(run, folder.path() / "checkpoints", 2);
    const Snapshot saved = read_checkpoint(*latest_checkpoint(folder.path() / "checkpoints"));
    on_mesh(run, [&](StageRank& rank) {
      resume(rank, *latest_checkpoint(folder.path() / "checkpoints"));
      if (!rank.parts.ranks->world().is_first()) return;
      const Exported exported = export_weights(rank.state, rank.parts, folder.path(), {});
      EXPECT_EQ(exported.step, 2);
      EXPECT_EQ(exported.averaged, averaged);
    });
    const auto file = read_safetensors(folder.path() / "model.safetensors");
    EXPECT_EQ(file.metadata.at("step"), "2");
    TensorMap expected = saved.model.tensors;
    if (averaged) {
      for (const auto& [name, tensor] : saved.average.tensors) expected.set(name, tensor);
    }
    expect_same_state(file.tensors, expected, 0);
    on_mesh(run, [&](StageRank& rank) {
      EXPECT_EQ(load_exported(rank.state, folder.path() / "model.safetensors"), averaged);
      for (const auto& [name, tensor] : rank.state.model_tensors()) {
        EXPECT_TRUE(at::equal(tensor, file.tensors.at(name))) << name;
      }
    });
  }
}

}  // namespace
}  // namespace tanren::testing
