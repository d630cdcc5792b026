// Checks that no operator runs outside of blocks between a model's first block and its last one. A
// rank cuts models into stages, recomputes and offloads by blocks, so blocks must cover that part
// completely.
#include "tanren/base/memory_tag.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/base/value_tensors.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/dry/dry_observer.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

namespace tanren {
namespace {

// Records the operators of a dry forward that run outside of all blocks on results of a block.
class BetweenBlocks final : public DryObserver {
 public:
  void around(const DryCall& call, c10::function_ref<void()> run) override {
    const bool is_inside = memory_tag().block != 0;
    std::set<const void*> given;
    bool on_made = false;
    for (const auto& value : call.arguments()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        given.insert(storage_of(tensor));
        on_made = on_made || made_.count(storage_of(tensor)) > 0;
      });
    }
    if (!is_inside && on_made && depth_ == 0) {
      heard_.push_back({call.op.operator_name().name, block_trail().passages.size()});
    }
    ++depth_;
    run();
    --depth_;
    for (const auto& value : call.results()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        const bool is_new = given.count(storage_of(tensor)) == 0;
        if (!is_new || !(is_inside || on_made)) return;
        made_.insert(storage_of(tensor));
        kept_.push_back(tensor);
      });
    }
  }

  // The operators that ran before the last of the blocks ended, with the blocks before them.
  std::string before_the_last_block() const {
    const auto& passages = block_trail().passages;
    std::string text;
    for (const auto& [name, ended] : heard_) {
      if (ended == passages.size()) continue;
      text += fmt::format("{} after {}; ", name, block_name(passages.at(ended - 1).id));
    }
    return text;
  }
  size_t num_heard() const { return heard_.size(); }

 private:
  static const void* storage_of(const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  }

  struct Heard {
    std::string name;
    size_t ended;  // passages through blocks that had ended
  };
  std::vector<Heard> heard_;
  int depth_ = 0;                 // of operators that others call
  std::set<const void*> made_;    // storages
  std::vector<at::Tensor> kept_;  // so that no address is used twice
};

struct ChainCase {
  ModelOptions options;
  DataInfo info;
  std::vector<int64_t> labels;  // the shape of one sample's
  bool is_masked = false;       // the batch has an attention mask
};

std::vector<ChainCase> chain_cases() {
  const DataInfo images{.input_shape = {3, 32, 32}, .outputs = 5};
  const DataInfo tokens{.input_shape = {12}, .outputs = 5, .vocab_size = 50};
  const DataInfo vectors{.input_shape = {12, 6}, .outputs = 5};
  const DataInfo pictures{
      .input_shape = {2, 32, 32}, .outputs = 3 * 32 * 32, .class_labels = false};
  const auto reader = [](const char* kind, const char* task, bool both_ways = false) {
    return ModelOptions{.kind = kind,
                        .dropout = 0.1,
                        .num_layers = 2,
                        .num_heads = 2,
                        .hidden_size = 16,
                        .task = task,
                        .bidirectional = both_ways};
  };
  const auto painter = [](const char* size, int64_t discriminators) {
    return ModelOptions{.kind = "pix2pixhd",
                        .size = size,
                        .generator_channels = 4,
                        .num_downsamplings = 2,
                        .num_blocks = 1,
                        .enhancer_blocks = 1,
                        .discriminators = discriminators,
                        .discriminator_channels = 4};
  };
  return {
      {{.kind = "mlp", .dropout = 0.1}, images, {}},
      {{.kind = "convnet", .dropout = 0.1}, images, {}},
      {{.kind = "resnet"}, images, {}},
      {{.kind = "resnet", .size = "resnet50", .append_head = 5}, images, {}},
      {{.kind = "vgg"}, images, {}},
      {{.kind = "vgg", .size = "vgg11_bn"}, images, {}},
      {reader("gpt2", "next_token"), tokens, {12}},
      {reader("gpt2", "classify"), tokens, {}, true},
      {reader("bert", "masked_lm"), tokens, {12}, true},
      {reader("bert", "classify"), tokens, {}, true},
      {reader("lstm", "next_token"), tokens, {12}},
      {reader("lstm", "classify"), tokens, {}, true},
      {reader("lstm", "classify", true), tokens, {}, true},
      {reader("lstm", "classify", true), vectors, {}},
      {painter("global", 0), pictures, {3, 32, 32}},
      {painter("local", 2), pictures, {3, 32, 32}},
  };
}

Batch chain_batch(const ChainCase& item) {
  static constexpr int64_t kSamples = 2;
  const auto sizes = [](std::vector<int64_t> of_sample) {
    of_sample.insert(of_sample.begin(), kSamples);
    return of_sample;
  };
  const bool reads_ids = item.info.vocab_size > 0;
  Batch batch;
  batch.ids = at::arange(kSamples, at::kLong);
  batch.fields.set("inputs",
                   at::zeros(sizes(item.info.input_shape), reads_ids ? at::kLong : at::kFloat));
  batch.fields.set("labels",
                   at::zeros(sizes(item.labels), item.info.class_labels ? at::kLong : at::kFloat));
  if (item.is_masked) batch.fields.set("attention_mask", at::ones({kSamples, 12}, at::kLong));
  return batch;
}

// Calls `run` with a dry task and returns the operators that it ran between blocks.
std::string between_blocks(const ChainCase& item,
                           const std::function<void(const Task&, const Batch&)>& run) {
  BetweenBlocks heard;
  const DryScope dry(&heard);
  const Task task = ModelRegistry().make(item.options, item.info);
  const Batch batch = chain_batch(item);
  const RandomScope random(1, 0, batch.ids);
  const BlockTrailScope trail;
  run(task, batch);
  EXPECT_GT(block_trail().passages.size(), 1u) << item.options.kind;
  return heard.before_the_last_block();
}

TEST(BlockChain, has_a_case_of_every_kind_with_blocks) {
  std::set<std::string> covered = {"torchscript", "package"};  // their modules are no blocks
  for (const auto& item : chain_cases()) covered.insert(item.options.kind);
  for (const auto& kind : ModelRegistry().kinds()) EXPECT_EQ(covered.count(kind), 1u) << kind;
}

TEST(BlockChain, of_a_forward_is_used_by_no_operator_outside_of_the_blocks) {
  for (const auto& item : chain_cases()) {
    const std::string outside = between_blocks(item, [](const Task& task, const Batch& batch) {
      for (const auto& phase : task.phases) phase.forward(batch);
    });
    EXPECT_EQ(outside, "") << item.options.kind << " " << item.options.task;
  }
}

TEST(BlockChain, of_a_prediction_is_used_by_no_operator_outside_of_the_blocks) {
  for (const auto& item : chain_cases()) {
    const std::string outside = between_blocks(item, [](const Task& task, const Batch& batch) {
      const at::NoGradGuard no_gradients;
      task.module->eval();
      if (!task.predict_rows) {
        task.predict(batch);
        return;
      }
      const PredictionRows rows = task.predict_rows(batch);
      rows.part(0, std::min(rows.at_once, rows.rows));
    });
    EXPECT_EQ(outside, "") << item.options.kind << " " << item.options.task;
  }
}

// Checks that BetweenBlocks finds such an operator.
TEST(BlockChain, hears_what_runs_between_two_blocks_on_what_the_first_made) {
  BetweenBlocks heard;
  const DryScope dry(&heard);
  const BlockTrailScope trail;
  const at::Tensor input = at::zeros({2, 3}), other = at::zeros({2, 3});
  at::Tensor x, y;
  {
    const BlockScope block("first");
    x = input.exp();
  }
  y = other.sin();
  x = x.select(1, 0);
  {
    const BlockScope block("last");
    x = x.cos();
  }
  x = x.sum();
  EXPECT_EQ(heard.before_the_last_block(), "aten::select after first; ");
  EXPECT_EQ(heard.num_heard(), 2u) << "select, and sum after the last block";
}

}  // namespace
}  // namespace tanren
