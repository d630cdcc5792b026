#include "tanren/config/identity.h"

#include "tanren/config/config_test_util.h"
#include "tanren/config/describe.h"
#include "tanren/config/fields.h"
#include "tanren/config/write_config.h"

#include <functional>

namespace tanren {
namespace {

using config_test::expect_contains;
using config_test::kGood;
using config_test::parse;

// A value of each key that differs from its default and is valid on its own.
struct Change {
  const std::string& key;

  void operator()(std::string& value) const {
    static const std::map<std::string, std::string> others = {
        {"run.device", "cpu"},
        {"run.max_time", "8h"},
        {"model.norm", "none"},
        {"model.activation", "tanh"},
        {"model.kind", "own"},
        {"model.memory_format", "contiguous"},
        {"model.loss", "mse"},
        {"data.last", "drop"},
        {"batch.global_batch", "64"},
        {"precision.mode", "bf16"},
        {"precision.level", "O1"},
        {"precision.cast_model_type", "fp32"},
        {"precision.cast_model_outputs", "bf16"},
        {"precision.loss_scale", "static"},
        {"precision.initial_scale", "128"},
        {"precision.matmul", "high"},
        {"optimizer.kind", "sgd"},
        {"schedule.kind", "cosine"},
        {"guard.nan_loss", "skip"},
        {"guard.nan_gradient", "skip"},
        {"memory.allocator", "default"},
        {"memory.limit", "4GiB"},
        {"memory.recovery", "off"},
        {"memory.release_cache", "step"},
        {"parallel.ranks", "threads"},
        {"parallel.backend", "gloo"},
        {"parallel.rendezvous", "tcp://a:29500"},
        {"parallel.compress", "bf16"},
        {"parallel.pipeline_schedule", "gpipe"},
        {"parallel.buffers", "first"},
        {"data.encoding", "latin-1"},
        {"data.train.label_type", "value"},
        {"data.eval.label_type", "value"},
        {"data.eval.kind", "csv"},
        {"average.kind", "ema"},
        {"average.start", "0.25"},
        {"average.buffers", "estimate"},
        {"evaluate.checkpoint", "best"},
        {"predict.scores", "all"},
        {"predict.broken", "skip"},
        {"quantize.scheme", "static"},
        {"quantize.range", "minmax"},
        {"early_stop.metric", "accuracy"},
        {"early_stop.mode", "max"},
        {"checkpoint.metric", "accuracy"},
        {"checkpoint.mode", "max"},
        {"data.train.kind", "tensors"}};
    const auto found = others.find(key);
    value = found != others.end() ? found->second : value + "x\n\t\"\\ü";
    if (key == "run.name") value = "a \"b\" ü";
    const bool is_path =
        key.ends_with(".path") || key.ends_with(".init_from") || key.ends_with(".fork_from");
    if (is_path || key == "model.perceptual") value = "/x/\"quoted\" \\ \t path";
  }
  void operator()(bool& value) const { value = !value; }
  void operator()(int64_t& value) const { value += key == "parallel.zero" ? 1 : 3; }
  void operator()(double& value) const { value = value * 0.5 + 0.2; }
  void operator()(std::optional<bool>& value) const { value = !value.value_or(false); }
  void operator()(std::optional<int64_t>& value) const { value = value.value_or(0) + 3; }
  void operator()(std::optional<double>& value) const {
    value = key == "precision.max_scale" ? 1024 : value.value_or(0) * 0.5 + 0.2;
  }
  void operator()(std::vector<int64_t>& value) const { value.push_back(3); }
  void operator()(std::vector<double>& value) const { value.push_back(0.5); }
  void operator()(std::vector<std::string>& value) const {
    value.emplace_back(key == "model.init_rename" ? "old=new" : "top5");
  }
  void operator()(std::map<std::string, std::string>& value) const { value["a b\n"] = "\"c\""; }
  void operator()(std::map<std::string, double>& value) const { value["a b"] = 0.5; }
  void operator()(std::vector<GroupOptions>& value) const {
    value.push_back({{"*.bias", "a"}, 0.5, std::nullopt});
    value.push_back({{"*"}, std::nullopt, 0.0});
  }
  void operator()(std::vector<UnfreezeOptions>& value) const { value.push_back({{"a.*"}, 7}); }
  void operator()(std::vector<DimensionOptions>& value) const {
    value.push_back({.key = "clip.norm", .low = 0.5, .high = 2.0, .points = 3});
    value.push_back({.key = "optimizer.kind", .values = {"sgd", "lion"}});
  }
};

void change(const Field& field) {
  std::visit([&](auto* member) { Change{field.key}(*member); }, field.member);
}

TEST(Identity, each_key_is_written_and_makes_another_run_unless_it_is_free) {
  RunConfig base = parse(kGood);
  base.data.eval.kind = "tensors";  // so that its section is written
  std::vector<std::string> seen, free;
  for (const auto& [key, member, info] : fields_of(base)) {
    RunConfig changed = base;
    change(*find_field(fields_of(changed), key));
    EXPECT_NE(to_toml(changed), to_toml(base)) << key;
    EXPECT_EQ(changed_keys(changed).count(key), 1u) << key;
    const auto differing = differing_keys(base, changed);
    // run.steps from "not set" to a number is a change of kind, not growth.
    const bool same_run = info.identity == Identity::free || info.identity == Identity::evaluates ||
                          key == "run.epochs";
    EXPECT_EQ(differing.size(), same_run ? 0u : 1u) << key;
    if (differing.size() == 1) expect_contains(differing[0], key + ": ");
    if (info.identity == Identity::free) free.push_back(key);
    seen.push_back(key);
  }
  EXPECT_EQ(seen, all_keys());
  EXPECT_GT(seen.size(), 70u);
  EXPECT_EQ(free, (std::vector<std::string>{"run.name",
                                            "run.device",
                                            "run.threads",
                                            "run.debug",
                                            "run.stop_after",
                                            "run.max_time",
                                            "model.memory_format",
                                            "data.workers",
                                            "data.prefetch",
                                            "data.encoding",
                                            "data.train.path",
                                            "data.train.delimiter",
                                            "data.train.decimal",
                                            "data.train.broken",
                                            "data.train.tokenizer",
                                            "data.eval.path",
                                            "data.eval.scale",
                                            "data.eval.offset",
                                            "data.eval.delimiter",
                                            "data.eval.decimal",
                                            "data.eval.broken",
                                            "data.eval.tokenizer",
                                            "batch.microbatch",
                                            "guard.nan_loss",
                                            "guard.nan_gradient",
                                            "guard.max_skips",
                                            "guard.spike_z",
                                            "guard.spike_window",
                                            "guard.growth_steps",
                                            "memory.allocator",
                                            "memory.limit",
                                            "memory.recompute",
                                            "memory.offload",
                                            "memory.recovery",
                                            "memory.release_cache",
                                            "parallel.ranks",
                                            "parallel.replicas",
                                            "parallel.devices",
                                            "parallel.pipeline",
                                            "parallel.pipeline_schedule",
                                            "parallel.cut_at",
                                            "parallel.backend",
                                            "parallel.rendezvous",
                                            "parallel.timeout",
                                            "parallel.bucket_mb",
                                            "parallel.first_bucket_mb",
                                            "parallel.overlap",
                                            "parallel.check_every",
                                            "parallel.zero",
                                            "evaluate.batch",
                                            "evaluate.metrics",
                                            "evaluate.checkpoint",
                                            "early_stop.patience",
                                            "early_stop.metric",
                                            "early_stop.mode",
                                            "early_stop.min_delta",
                                            "early_stop.start",
                                            "checkpoint.every",
                                            "checkpoint.keep",
                                            "checkpoint.best",
                                            "checkpoint.metric",
                                            "checkpoint.mode",
                                            "metrics.console_every",
                                            "metrics.jsonl",
                                            "metrics.tensorboard",
                                            "metrics.tensorboard_every",
                                            "metrics.images_every",
                                            "generate.prompt",
                                            "generate.tokens",
                                            "generate.temperature",
                                            "generate.top_k",
                                            "generate.top_p",
                                            "generate.seed",
                                            "generate.num_beams",
                                            "generate.length_penalty",
                                            "generate.stop_token",
                                            "predict.scores",
                                            "predict.broken",
                                            "quantize.tolerance",
                                            "sweep.trials",
                                            "sweep.metric",
                                            "sweep.mode",
                                            "sweep.sampler",
                                            "sweep.scheduler",
                                            "sweep.first_rung",
                                            "sweep.reduction",
                                            "sweep.interval",
                                            "sweep.concurrent",
                                            "sweep.devices",
                                            "sweep.timeout",
                                            "sweep.keep",
                                            "sweep.find",
                                            "sweep.confirm",
                                            "sweep.space"}));
}

TEST(Identity, how_it_is_evaluated_may_change_unless_evaluations_decide_over_the_run) {
  RunConfig base = parse(kGood);
  base.data.eval.kind = "csv";
  RunConfig other = base;
  other.evaluate.every = 7;
  other.evaluate.metrics = {"f1_macro"};
  other.data.eval.classes = 3;
  EXPECT_TRUE(differing_keys(base, other).empty());
  EXPECT_FALSE(evaluations_decide(other));
  const auto expect_refused = [&](auto judge) {
    RunConfig one = base, two = other;
    judge(one);
    // Evaluations decided until now, and decide nothing from here on.
    EXPECT_TRUE(differing_keys(one, two, {"schedule.kind"}).empty());
    judge(two);
    EXPECT_EQ(differing_keys(one, two).size(), 2u);  // evaluate.metrics is not among them
    EXPECT_TRUE(evaluations_decide(two));
  };
  expect_refused([](RunConfig& config) { config.early_stop.patience = 2; });
  expect_refused([](RunConfig& config) { config.checkpoint.best = 1; });
  expect_refused([](RunConfig& config) { config.schedule.kind = "reduce_on_plateau"; });
}

TEST(Identity, a_longer_run_is_the_same_run_and_a_shorter_one_is_not) {
  const RunConfig base = parse(kGood);
  RunConfig longer = base, shorter = base, steps = base;
  longer.run.epochs = 3;
  shorter.run.epochs = 1;
  steps.run.epochs.reset();
  steps.run.steps = 1000000;
  EXPECT_TRUE(differing_keys(base, longer).empty());
  EXPECT_EQ(differing_keys(base, shorter), (std::vector<std::string>{"run.epochs: 2 → 1"}));
  EXPECT_EQ(differing_keys(base, steps),
            (std::vector<std::string>{"run.steps: not set → 1000000", "run.epochs: 2 → not set"}));
}

// Issue 21: a change that the guard's message advises counted as a different run.
TEST(Identity, what_is_asked_for_may_change_rate_schedule_clip_and_precision_but_fp64) {
  const RunConfig base = parse(kGood);
  RunConfig changed = base;
  changed.optimizer.learning_rate = 0.5;
  changed.schedule.kind = "cosine";
  changed.clip.norm = 2;
  changed.precision.mode = "bf16";
  changed.optimizer.weight_decay = 0.5;
  const std::set<std::string> keys = {"optimizer.learning_rate", "schedule.kind", "clip.norm",
                                      "precision.mode", "optimizer.weight_decay"};
  EXPECT_EQ(differing_keys(base, changed).size(), 5u);
  EXPECT_EQ(differing_keys(base, changed, keys),
            (std::vector<std::string>{"optimizer.weight_decay: not set → 0.5"}));
  const auto changes = changes_on_request(base, changed);
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[0].key, "precision.mode");
  EXPECT_EQ(changes[0].before, "\"auto\"");
  EXPECT_EQ(changes[0].now, "\"bf16\"");
  RunConfig wide = base;
  wide.precision.mode = "fp64";
  for (const auto& [one, other] : {std::pair{base, wide}, {wide, base}}) {
    EXPECT_EQ(differing_keys(one, other, keys).size(), 1u);
    EXPECT_TRUE(changes_on_request(one, other).empty());
  }
  RunConfig taken = base;
  take_keys(taken, changed, {"clip.norm", "optimizer.weight_decay"});
  EXPECT_EQ(taken.clip.norm, 2);
  EXPECT_EQ(taken.optimizer.weight_decay, 0.5);
  EXPECT_EQ(taken.precision.mode, "auto");
}

TEST(Identity, of_where_a_run_began_only_the_last_name_counts_and_of_its_data_nothing) {
  const auto differ = [](const std::string& key, const std::string& one, const std::string& other) {
    const std::vector<std::string> rest = {"model.kind="};
    const bool from_hf = key == "model.from_hf";
    const auto with = [&](const std::string& value) {
      std::vector<std::string> sets = from_hf ? rest : std::vector<std::string>{};
      sets.push_back(key + "=" + value);
      return parse(kGood, sets);
    };
    return !differing_keys(with(one), with(other)).empty();
  };
  EXPECT_FALSE(differ("model.init_from", "/a/start.pt", "/b/c/start.pt"));
  EXPECT_TRUE(differ("model.init_from", "/a/start.pt", "/a/other.pt"));
  EXPECT_TRUE(differ("model.init_from", "/a/start.pt", ""));
  EXPECT_FALSE(differ("run.fork_from", "/a/run", "/b/run"));
  EXPECT_TRUE(differ("run.fork_from", "/a/run", "/a/other"));
  EXPECT_TRUE(differ("run.fork_from", "/a/run", ""));
  // Step folders of different runs have the same names.
  const std::string step = "/a/run/checkpoints/step-4";
  EXPECT_FALSE(differ("run.fork_from", step, "/b/run/checkpoints/step-4/"));
  EXPECT_TRUE(differ("run.fork_from", step, "/a/other/checkpoints/step-4"));
  EXPECT_TRUE(differ("run.fork_from", step, "/a/run/checkpoints/step-8"));
  EXPECT_FALSE(differ("run.fork_from", step, "/b/run"));  // the run chose that step
  EXPECT_TRUE(differ("run.fork_from", step, "/b/step-4"));
  EXPECT_FALSE(differ("model.from_hf", "/a/bert/", "/b/bert"));
  EXPECT_TRUE(differ("model.from_hf", "owner/bert", "owner/gpt2"));
  EXPECT_FALSE(differ("data.train.path", "/a/b.csv", "/c/d.csv"));
}

TEST(WriteConfig, reads_back_a_trained_model_that_is_named_instead_of_a_kind) {
  RunConfig config = parse(kGood, {"model.kind=", "model.from_hf=owner/a model"});
  EXPECT_EQ(config.model.from_hf, "owner/a model");
  EXPECT_EQ(differing_keys(config, parse(to_toml(config))), std::vector<std::string>());
}

TEST(WriteConfig, reads_back_the_run_that_it_is_a_fork_of) {
  const RunConfig config = parse(kGood, {"run.fork_from=/a/\"run\" of \\\\ ü"});
  EXPECT_EQ(config.run.fork_from, "/a/\"run\" of \\\\ ü");
  EXPECT_EQ(differing_keys(config, parse(to_toml(config))), std::vector<std::string>());
}

TEST(Identity, a_fork_may_change_what_a_run_that_resumes_may_not) {
  const RunConfig base = parse(kGood);
  const RunConfig other =
      parse(kGood, {"run.seed=9", "run.epochs=1", "clip.norm=0.5", "run.threads=2"});
  const auto changes = defining_changes(base, other);
  ASSERT_EQ(changes.size(), 3u);  // not the threads
  EXPECT_EQ(changes[0].key + changes[0].before + changes[0].now, "run.seed09");
  EXPECT_EQ(changes[1].key, "run.epochs");
  EXPECT_EQ(changes[2].key, "clip.norm");
  EXPECT_EQ(defining_changes(base, other, {"clip.norm"}).size(), 2u);
}

// One config per kind of optimizer and schedule, with all keys that only it reads.
const std::vector<std::vector<std::string>>& kind_sets() {
  static const std::vector<std::vector<std::string>> sets = {
      {"optimizer.kind=nadam", "optimizer.decoupled_weight_decay=true",
       "optimizer.momentum_decay=0.1"},
      {"optimizer.state=8bit", "optimizer.fp32_state=[\"*bias\"]"},
      {"optimizer.kind=rmsprop", "optimizer.alpha=0.5", "optimizer.centered=true"},
      {"optimizer.kind=adagrad", "optimizer.learning_rate_decay=0.1",
       "optimizer.initial_accumulator=2"},
      {"optimizer.kind=adafactor", "optimizer.beta2_decay=-0.5", "optimizer.clip_threshold=2",
       "optimizer.scale_floor=0.5", "optimizer.relative_step=false"},
      {"optimizer.kind=muon", "optimizer.newton_schulz_steps=3",
       "optimizer.adjust_learning_rate=original", "optimizer.adamw_parameters=[\"a\", \"b*\"]",
       "optimizer.nesterov=false"},
      {"schedule.kind=cosine_with_restarts", "schedule.cycles=3", "schedule.cycle_growth=2"},
      {"schedule.kind=polynomial", "schedule.power=2"},
      {"schedule.kind=inverse_sqrt", "schedule.timescale=7"},
      {"schedule.kind=step", "schedule.step_size=7", "schedule.factor=0.5"},
      {"schedule.kind=multi_step", "schedule.milestones=[3, 9]"},
      {"schedule.kind=one_cycle", "schedule.warmup_fraction=0.5", "schedule.div_factor=2",
       "schedule.final_div_factor=3", "schedule.shape=linear"},
      {"schedule.kind=warmup_stable_decay", "schedule.decay_steps=5", "schedule.shape=1-sqrt"},
      {"schedule.kind=reduce_on_plateau", "data.eval.kind=csv", "data.eval.path=e",
       "data.eval.classes=5", "evaluate.every=2", "evaluate.metrics=[top2]", "schedule.metric=top2",
       "schedule.mode=max", "schedule.patience=3", "schedule.threshold=0.5",
       "schedule.threshold_mode=abs", "schedule.cooldown=2"}};
  return sets;
}

std::set<std::string> of_other_kinds() {
  std::set<std::string> keys;
  for (const auto& sets : kind_sets()) {
    for (const auto& set : sets) {
      const std::string key = set.substr(0, set.find('='));
      const bool is_theirs = key.rfind("optimizer.", 0) == 0 || key.rfind("schedule.", 0) == 0;
      if (is_theirs && !key.ends_with(".kind") && !key.ends_with("nesterov")) keys.insert(key);
    }
  }
  return keys;
}

TEST(WriteConfig, reads_back_the_keys_of_every_optimizer_and_schedule) {
  for (const auto& sets : kind_sets()) {
    const RunConfig config = parse(kGood, sets);
    EXPECT_EQ(differing_keys(config, parse(to_toml(config))), std::vector<std::string>())
        << sets[0];
    for (const auto& set : sets) {
      EXPECT_EQ(changed_keys(config).count(set.substr(0, set.find('='))), 1u) << set;
    }
  }
}

TEST(WriteConfig, reads_back_to_the_same_values_for_every_key) {
  // Each kind of source writes its own keys, because valid combinations differ by kind.
  const std::vector<std::string> by_kind[] = {
      {"fields", "samples"},
      {"path", "label", "label_type", "shape", "scale", "offset", "classes"}};
  // The keys of images, pairs, text, tokens and tables are written and read back in
  // sections/data_*_test.cpp.
  const std::vector<std::string> of_images = {
      "size",  "resize",   "crop", "crop_scale", "crop_ratio", "pad",   "flip",
      "color", "channels", "mean", "std",        "max_pixels", "broken"};
  const std::vector<std::string> of_pairs = {"side_by_side", "swap", "filter", "target_filter",
                                             "target_channels"};
  const std::vector<std::string> of_tokens = {"context",    "stride",
                                              "include",    "exclude",
                                              "part",       "dtype",
                                              "vocab_size", "document_end",
                                              "text",       "text_pair",
                                              "tokenizer",  "class_names",
                                              "padding",    "document_end_token"};
  const std::vector<std::string> of_tables = {"columns", "ignore",    "categories", "standardize",
                                              "missing", "delimiter", "decimal"};
  std::set<std::string> covered = of_other_kinds();
  for (const char* alone : {"model.from_hf", "run.fork_from", "data.split"}) {  // own tests
    covered.insert(alone);
  }
  const std::vector<std::string> of_quantize = {"scheme", "keep", "samples", "range", "tolerance"};
  for (const auto& key : of_quantize) covered.insert("quantize." + key);  // below
  for (const auto& key : all_keys()) {
    if (key.starts_with("sweep.")) covered.insert(key);  // sections/sweep_test.cpp
  }
  for (const char* of_o2 : {"keep_batchnorm_fp32", "master_weights"}) {  // the same
    covered.insert(std::string("precision.") + of_o2);
  }
  for (const char* source : {"data.train.", "data.eval."}) {
    for (const auto& key : of_images) covered.insert(source + key);
    for (const auto& key : of_pairs) covered.insert(source + key);
    for (const auto& key : of_tokens) covered.insert(source + key);
    for (const auto& key : of_tables) covered.insert(source + key);
  }
  for (const bool synthetic : {false, true}) {
    RunConfig config = parse(kGood);
    config.model.kind = "own";
    config.optimizer.kind = synthetic ? "adamw" : "sgd";
    config.average.kind = synthetic ? "ema" : "swa";
    config.model.loss = synthetic ? "cross_entropy" : "mse";
    config.data.train.kind = config.data.eval.kind = synthetic ? "synthetic" : "csv";
    if (synthetic) config.data.train.path.clear();
    for (const Field& field : fields_of(config)) {
      std::set<std::string> left = {
          "run.steps",  "model.kind",   "data.train.kind", "data.eval.kind", "optimizer.kind",
          "model.loss", "average.kind", "model.from_hf",   "run.fork_from",  "data.split"};
      for (const auto& key : of_quantize) left.insert("quantize." + key);
      if (field.key.starts_with("sweep.")) continue;
      if (synthetic) left.insert("data.encoding");  // there is no text
      for (const auto& key : of_other_kinds()) left.insert(key);
      for (const char* key : {"beta1", "beta2", "eps", "amsgrad"}) {
        if (!synthetic) left.insert(std::string("optimizer.") + key);
      }
      for (const char* key : {"momentum", "nesterov", "dampening"}) {
        if (synthetic) left.insert(std::string("optimizer.") + key);
      }
      for (const char* key : {"decay", "decay_warmup"}) {
        if (!synthetic) left.insert(std::string("average.") + key);
      }
      if (synthetic) left.insert("average.learning_rate");
      for (const char* key : {"temperature", "top_k", "top_p", "seed"}) {
        if (synthetic) left.insert(std::string("generate.") + key);
      }
      for (const char* key : {"num_beams", "length_penalty"}) {
        if (!synthetic) left.insert(std::string("generate.") + key);
      }
      for (const char* key : {"ranks", "replicas", "compress"}) {
        if (synthetic) left.insert(std::string("parallel.") + key);
      }
      for (const char* key : {"backend", "rendezvous", "zero"}) {
        if (!synthetic) left.insert(std::string("parallel.") + key);
      }
      left.insert("optimizer.dampening");
      left.insert("parallel.devices");
      left.insert("precision.keep_batchnorm_fp32");
      left.insert("precision.master_weights");
      if (!synthetic) left.insert("model.label_smoothing");
      for (const char* source : {"data.train.", "data.eval."}) {
        for (const auto& key : by_kind[synthetic ? 1 : 0]) left.insert(source + key);
        for (const auto& key : of_pairs) left.insert(source + key);
        for (const auto& key : of_images) left.insert(source + key);
        for (const auto& key : of_tokens) left.insert(source + key);
        for (const auto& key : of_tables) left.insert(source + key);
        left.insert(std::string(source) + "classes");
        left.insert(std::string(source) + "only_classes");
      }
      if (left.count(field.key) > 0) continue;
      change(field);
      covered.insert(field.key);
    }
    const std::string text = to_toml(config);
    RunConfig back = parse(text);
    back.asked = config.asked;
    EXPECT_EQ(to_toml(back), text);
    EXPECT_EQ(differing_keys(config, back), std::vector<std::string>());
    EXPECT_EQ(back.model.options, config.model.options);
    EXPECT_EQ(back.data.eval.path, config.data.eval.path);
  }
  // Set at the top of the loop or alone in its branch.
  for (const char* key :
       {"run.steps", "model.kind", "model.loss", "optimizer.kind", "optimizer.dampening",
        "average.kind", "data.train.kind", "data.eval.kind", "data.train.classes",
        "data.eval.classes", "data.train.only_classes", "data.eval.only_classes",
        "parallel.devices"}) {
    covered.insert(key);
  }
  for (const auto& key : all_keys()) EXPECT_EQ(covered.count(key), 1u) << key;
  RunConfig rest =
      parse(kGood, {"run.epochs=none", "run.steps=7", "optimizer.kind=sgd",
                    "optimizer.dampening=0.25", "data.train.classes=4", "data.eval.kind=csv",
                    "data.eval.path=e", "data.eval.classes=5", "data.train.only_classes=[1, 3]",
                    "data.eval.only_classes=[1, 3]", "parallel.ranks=threads",
                    "parallel.devices=[2]", "quantize.scheme=static", "quantize.keep=[\"a.*\", b]",
                    "quantize.samples=9", "quantize.range=minmax", "quantize.tolerance=0.25"});
  EXPECT_EQ(rest.quantize.keep, (std::vector<std::string>{"a.*", "b"}));
  EXPECT_EQ(rest.data.train.only_classes, (std::vector<std::string>{"1", "3"}));
  EXPECT_EQ(differing_keys(rest, parse(to_toml(rest))), std::vector<std::string>());
}

TEST(WriteConfig, marks_what_nobody_asked_for) {
  const auto text = to_toml(parse(kGood, {"clip.norm=1"}));
  expect_contains(text, "norm = 1.0\n");
  expect_contains(text, "seed = 0  # default\n");
  EXPECT_EQ(text.find("[data.eval]"), std::string::npos);
}

TEST(Identity, ranks_must_have_all_alike_but_what_a_machine_may_have_its_own_way) {
  const auto differ = [](const std::function<void(RunConfig&)>& change) {
    RunConfig other = parse(kGood);
    change(other);
    return values_of_all_ranks(parse(kGood)) != values_of_all_ranks(other);
  };
  EXPECT_FALSE(differ([](RunConfig&) {}));
  EXPECT_TRUE(differ([](RunConfig& config) { config.run.seed = 77; }));
  // Identity::free, yet a rank with another value would wait for the others.
  EXPECT_TRUE(differ([](RunConfig& config) { config.run.stop_after = 3; }));
  EXPECT_TRUE(differ([](RunConfig& config) { config.parallel.bucket_mb = 3; }));
  EXPECT_TRUE(differ([](RunConfig& config) { config.evaluate.every = 3; }));
  EXPECT_FALSE(differ([](RunConfig& config) { config.run.threads = 3; }));
  EXPECT_FALSE(differ([](RunConfig& config) { config.run.debug = true; }));
  EXPECT_FALSE(differ([](RunConfig& config) { config.data.train.path = "/local/disk"; }));
  EXPECT_FALSE(differ([](RunConfig& config) { config.data.train.tokenizer = "/local/disk"; }));
  EXPECT_FALSE(differ([](RunConfig& config) { config.optimizer.init_from = "/local/disk"; }));
  EXPECT_FALSE(differ([](RunConfig& config) { config.memory.limit = "1GiB"; }));
}

// Each rank predicts what every stage holds, and refuses a run that one of them cannot hold.
TEST(Identity, ranks_of_stages_recompute_and_move_the_same) {
  for (const int64_t stages : {1, 2}) {
    RunConfig one = parse(kGood);
    one.parallel.pipeline = stages;
    RunConfig recomputing = one, offloading = one, limited = one;
    recomputing.memory.recompute = {"*"};
    offloading.memory.offload = {"*"};
    limited.memory.limit = "1GiB";
    EXPECT_EQ(values_of_all_ranks(one) != values_of_all_ranks(recomputing), stages > 1);
    EXPECT_EQ(values_of_all_ranks(one) != values_of_all_ranks(offloading), stages > 1);
    EXPECT_EQ(values_of_all_ranks(one), values_of_all_ranks(limited));
  }
}

}  // namespace
}  // namespace tanren
