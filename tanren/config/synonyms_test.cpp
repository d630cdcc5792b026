#include "tanren/config/synonyms.h"

#include "tanren/config/config_test_util.h"
#include "tanren/config/describe.h"
#include "tanren/config/validate.h"

#include <array>
#include <regex>
#include <set>

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
           {"optim = \"adam\"", "optimizer.kind = \"adam\""},
           {"T_mult = 2", "schedule.cycle_growth"},
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
           {"strategy = \"ddp\"", "parallel.ranks = \"processes\""},
           {"bucket_cap_mb = 25", "parallel.bucket_mb"},
           {"find_unused_parameters = true", "no key: parameters without a gradient"},
           {"nproc_per_node = 4", "tanren launch -n"},
           {"zero_stage = 1", "parallel.zero"},
           {"n_critic = 5", "objectives.NAME.every"},
           {"master_addr = \"a\"", "parallel.rendezvous = \"tcp://host:port\""},
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
  expect_contains(error_of(kGood, {"optimizer.kind=Adam"}), "(here it is adam)");
  expect_contains(error_of(kGood, {"model.loss=mae"}), "(here it is l1)");
  expect_contains(error_of(kGood, {"parallel.ranks=DDP"}), "(here it is processes)");
  expect_contains(error_of(kGood, {"parallel.buffers=broadcast"}), "(here it is first)");
  expect_contains(error_of(kGood, {"parallel.buffers=synchronized"}), "(here it is synchronised)");
  EXPECT_FALSE(word_synonym("model.loss", "mse").has_value());
}

// Each word that the table leads to exists for its key; a word of ours is never renamed.
TEST(Synonyms, never_rename_a_word_that_is_one_of_ours) {
  const auto words = closed_sets({"mlp", "convnet", "gpt2", "bert", "lstm", "resnet", "vgg"});
  for (const auto& [key, word, ours] : word_synonyms()) {
    const auto known = words.find(std::string(key));
    ASSERT_NE(known, words.end()) << key;
    const auto has = [&](std::string_view text) {
      return std::find(known->second.begin(), known->second.end(), text) != known->second.end();
    };
    EXPECT_TRUE(has(ours)) << key << " = " << ours;
    EXPECT_TRUE(!has(word) || word == ours) << key << ": " << word << " is renamed to " << ours;
  }
}

TEST(Synonyms, lead_to_keys_and_words_that_there_are) {
  const auto keys = all_keys();
  const auto words = closed_sets({"mlp", "convnet", "gpt2", "bert", "lstm", "resnet", "vgg"});
  std::set<std::string_view> seen;
  for (const auto& [theirs, ours] : key_synonyms()) {
    EXPECT_TRUE(seen.insert(theirs).second) << theirs << " stands there twice";
    EXPECT_EQ(synonym(theirs), ours) << theirs << " is never found";
    EXPECT_EQ(std::find(keys.begin(), keys.end(), theirs), keys.end()) << theirs << " is a key";
    const std::regex key(R"re(\b([a-z_]+(\.[a-z_0-9]+)+)( = "([^"]*)")?)re");
    const std::string text(ours);
    bool any = text.rfind("no key: ", 0) == 0 || text.find("command line") != std::string::npos ||
               text.find("tanren launch") != std::string::npos ||
               text.rfind("objectives.NAME.", 0) == 0;
    for (std::sregex_iterator found(text.begin(), text.end(), key), end; found != end; ++found) {
      const std::string name = (*found)[1];
      if (name == "model.safetensors" || name == "model.unfreeze") continue;
      any = true;
      EXPECT_NE(std::find(keys.begin(), keys.end(), name), keys.end()) << theirs << " → " << text;
      const auto closed = words.find(name);
      if (!(*found)[3].matched || closed == words.end()) continue;
      const auto& known = closed->second;
      EXPECT_NE(std::find(known.begin(), known.end(), (*found)[4].str()), known.end()) << text;
    }
    EXPECT_TRUE(any || text.find("model.unfreeze") != std::string::npos) << theirs << " → " << text;
  }
}

// Issue 21: adam was mapped to adamw, which decays weights differently.
TEST(Synonyms, tell_where_a_word_or_switch_of_others_has_no_equal_here) {
  // They mean half-precision weights, GPT-1, half a sum of squares, and a schedule with its own
  // period.
  for (const auto& [key, word, wrong] :
       std::vector<std::array<const char*, 3>>{{"precision.mode", "16-true", "fp16"},
                                               {"precision.mode", "bf16-true", "bf16"},
                                               {"model.kind", "gpt", "gpt2"},
                                               {"model.loss", "l2", "mse"},
                                               {"schedule.kind", "cosineannealinglr", "cosine"}}) {
    const auto error = error_of(kGood, {std::string(key) + "=" + word});
    expect_contains(error, std::string(key) + " \"" + word + "\" is unknown; one of ");
    EXPECT_EQ(error.find(std::string("here it is ") + wrong), std::string::npos) << error;
  }
  EXPECT_EQ(error_of(kGood, {"model.kind=bert", "model.size=large"}).find("gpt2"),
            std::string::npos);
  expect_contains(error_of("precision = \"16-true\"\n" + std::string(kGood)), "run.toml:1");
  expect_contains(error_of("fp16_full_eval = true\n" + std::string(kGood)),
                  "no key: an evaluation");
  expect_contains(error_of("num_samples = 10\n" + std::string(kGood)), "one sample");
  expect_contains(error_of("torch_dtype = \"float16\"\n" + std::string(kGood)),
                  "weights stay fp32");
  expect_contains(error_of("skip_loss_spike = true\n" + std::string(kGood)), "skips nothing");
  expect_contains(error_of("fp16 = false\n" + std::string(kGood)),
                  "here it is precision.mode = \"fp16\" for true");
  expect_contains(error_of("greater_is_better = false\n" + std::string(kGood)),
                  "checkpoint.mode = \"max\" for true");
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
