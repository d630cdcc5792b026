#include "tanren/config/synonyms.h"

#include "tanren/config/config_test_util.h"
#include "tanren/config/describe.h"

#include <algorithm>

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::kGood;

TEST(Synonyms, translate_the_lines_people_bring_into_our_keys) {
  for (const auto& [line, ours] : std::map<std::string, std::string>{
           {"fp16 = true", "precision.mode = \"fp16\""},
           {"bf16 = true", "precision.mode = \"bf16\""},
           {"amp = true", "precision.mode"},
           {"gradient_accumulation_steps = 4", "batch.microbatch (batch.global_batch /"},
           {"per_device_train_batch_size = 8", "batch.microbatch"},
           {"train_batch_size = 8", "batch.global_batch"},
           {"batch_size = 8", "batch.global_batch"},
           {"lr = 0.1", "optimizer.learning_rate"},
           {"LR = 0.1", "optimizer.learning_rate"},
           {"learning-rate = 0.1", "optimizer.learning_rate"},
           {"weight_decay = 0.1", "optimizer.weight_decay"},
           {"warmup_steps = 10", "schedule.warmup_steps"},
           {"lr_scheduler_type = \"cosine\"", "schedule.kind"},
           {"optim = \"adamw_torch\"", "optimizer.kind = \"adamw\""},
           {"max_grad_norm = 1.0", "clip.norm"},
           {"num_train_epochs = 3", "run.epochs"},
           {"max_steps = 3", "run.steps"},
           {"seed = 3", "run.seed"},
           {"num_workers = 3", "data.workers"},
           {"dataloader_num_workers = 3", "data.workers"},
           {"logging_steps = 3", "metrics.console_every"},
           {"save_steps = 3", "checkpoint.every"},
           {"eval_steps = 3", "evaluate.every"},
           {"save_total_limit = 2", "checkpoint.keep"},
           {"strategy = \"ddp\"", "parallel.data = \"processes\""},
           {"bucket_cap_mb = 25", "parallel.bucket_mb"},
           {"find_unused_parameters = true", "no key: parameters without a gradient"},
           {"nproc_per_node = 4", "tanren launch -n"},
           {"zero_stage = 1", "parallel.zero"},
           {"master_addr = \"a\"", "parallel.meeting = \"tcp://host:port\""},
           {"precision = \"16-mixed\"", "precision.mode = \"fp16\""},
           {"precision = \"bf16-mixed\"", "precision.mode = \"bf16\""},
           {"precision = 16", "precision.mode = \"fp16\""},
           {"mixed_precision = \"no\"", "precision.mode = \"fp32\""}}) {
    const auto error = error_of(line + "\n" + kGood);
    expect_contains(error, "run.toml:1: ");
    expect_contains(error, ours);
  }
  expect_contains(error_of(kGood, {"optimizer.lr=1"}), "here it is optimizer.learning_rate");
  expect_contains(error_of(kGood, {"fp16=True"}), "here it is precision.mode = \"fp16\"");
}

TEST(Synonyms, name_only_keys_that_there_are) {
  const auto keys = all_keys();
  for (const char* theirs : {"fp16",
                             "amp",
                             "gradient_accumulation_steps",
                             "batch_size",
                             "lr",
                             "betas",
                             "optim",
                             "max_grad_norm",
                             "num_workers",
                             "seed",
                             "logging_steps",
                             "val_check_interval",
                             "save_top_k",
                             "warmup_ratio",
                             "min_lr",
                             "accelerator",
                             "label_smoothing_factor",
                             "criterion",
                             "train_file",
                             "loss_scale_window",
                             "allow_tf32",
                             "benchmark",
                             "ddp",
                             "device_ids",
                             "dist_backend",
                             "init_method",
                             "ddp_timeout",
                             "overlap_comm",
                             "ddp_comm_hook",
                             "broadcast_buffers",
                             "sync_batchnorm",
                             "zero_optimization",
                             "drop_last"}) {
    const auto ours = synonym(theirs);
    ASSERT_TRUE(ours.has_value()) << theirs;
    const auto key = ours->substr(0, ours->find_first_of(" :"));
    EXPECT_NE(std::find(keys.begin(), keys.end(), key), keys.end()) << theirs << " → " << *ours;
  }
  EXPECT_FALSE(synonym("no_such_thing").has_value());
}

TEST(Synonyms, translate_the_words_people_write_as_values) {
  expect_contains(error_of(kGood, {"precision.mode=Float16"}), "(here it is fp16)");
  expect_contains(error_of(kGood, {"optimizer.kind=Adam"}), "(here it is adamw)");
  expect_contains(error_of(kGood, {"model.loss=mae"}), "(here it is l1)");
  expect_contains(error_of(kGood, {"parallel.data=DDP"}), "(here it is processes)");
  expect_contains(error_of(kGood, {"parallel.buffers=broadcast"}), "(here it is first)");
  expect_contains(error_of(kGood, {"parallel.buffers=synchronized"}), "(here it is synchronised)");
  EXPECT_FALSE(word_synonym("model.loss", "mse").has_value());
}

TEST(Synonyms, advise_the_right_name_before_a_similar_one) {
  const auto keys = all_keys();
  EXPECT_EQ(advice("batch.micro_batch", keys), "; nearest: batch.microbatch");
  EXPECT_EQ(advice("micro_batches", keys), "; nearest: batch.microbatch");
  EXPECT_EQ(advice("optimizer.warmup_stps", keys), "; nearest: schedule.warmup_steps");
  EXPECT_EQ(advice("optimizer.growth_factor", keys), "; nearest: precision.growth_factor");
  EXPECT_EQ(advice("batch.global", keys), "; nearest: batch.global_batch");
  EXPECT_EQ(advice("precision.scale", keys), "; nearest: precision.loss_scale or data.train.scale");
  EXPECT_EQ(advice("batch.size", keys), "; here it is batch.global_batch");
  EXPECT_EQ(advice("memory.xyz", keys), "; see tanren help memory");
  EXPECT_EQ(advice("clip.max_norm_value", keys), "; nearest: clip.norm");
  EXPECT_EQ(advice("Model.Dropout", keys), "; nearest: model.dropout");
  EXPECT_EQ(advice("qqqqqqqqqqqqqqqqqqqqqqqqqqq", keys), "; see tanren help");
}

}  // namespace
}  // namespace tanren
