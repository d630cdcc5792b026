#include "tanren/config/validate.h"

#include "tanren/config/config_test_util.h"
#include "tanren/config/metric_mode.h"

#include <algorithm>
#include <limits>

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::kGood;
using config_test::parse;

using Cases = std::vector<std::pair<std::vector<std::string>, std::string>>;

void expect_refused(const Cases& cases) {
  for (const auto& [sets, part] : cases) {
    const auto error = error_of(kGood, sets);
    expect_contains(error, part);
    EXPECT_EQ(error.find('\n'), std::string::npos) << "one problem, one line: " << error;
  }
}

TEST(Validate, refuses_lengths_seeds_devices_and_names_that_cannot_be) {
  expect_refused({
      {{"run.seed=-1"}, "run.seed is -1; it must be at least 0"},
      {{"run.epochs=0"}, "run.epochs is 0; it must be at least 1"},
      {{"run.epochs=-3"}, "run.epochs is -3"},
      {{"run.epochs=9000000000000000000"}, "run.epochs is 9000000000000000000, which is absurd"},
      {{"run.epochs=none"}, "run.steps and run.epochs are both missing"},
      {{"run.steps=5"}, "run.steps and run.epochs are both set"},
      {{"run.stop_after=0"}, "run.stop_after is 0"},
      {{"run.max_time=soon"}, "run.max_time \"soon\" is no length of time above 0; write 8h, 90m"},
      {{"run.max_time=0"}, "run.max_time \"0\" is no length of time"},
      {{"run.max_time=-5m"}, "run.max_time \"-5m\" is no length of time"},
      {{"run.max_time=40000d"}, "run.max_time \"40000d\" is no length of time"},
      {{"run.fork_from=a", "model.init_from=b"},
       "run.fork_from and model.init_from both give the weights; drop one"},
      {{"run.fork_from=a", "optimizer.init_from=b"},
       "run.fork_from and optimizer.init_from both give the optimizer's state; drop one"},
      {{"run.fork_from=a", "objectives.critic.optimizer.init_from=b"},
       "run.fork_from and objectives.critic.optimizer.init_from both give the optimizer's state"},
      {{"run.threads=1000000"}, "run.threads is 1e+06; it must lie in [0, 4096]"},
      {{"run.threads=-1"}, "run.threads is -1"},
      {{"run.device=tpu"}, "run.device \"tpu\" is unknown"},
      {{"run.device=gpu"}, "(here it is cuda)"},
      {{"run.device=cuda:-1"}, "run.device"},
      {{"run.device=cuda:99999999999999999999"}, "run.device"},
      {{"run.device=cuda:1x"}, "run.device"},
      {{"run.name=a/b"}, "run.name \"a/b\""},
      {{"run.name=.."}, "run.name \"..\""},
      {{"run.name=\"a\\nb\""}, "run.name has control characters"},
  });
}

TEST(Validate, refuses_models_that_cannot_be_built) {
  expect_refused({
      {{"model.kind=mpl"},
       "model.kind \"mpl\" is unknown; one of mlp, convnet, own (nearest: mlp)"},
      {{"model.kind="}, "model.kind is missing; one of mlp, convnet, own"},
      {{"model.hidden=[8, 0]"}, "model.hidden is 0; it must be at least 1"},
      {{"model.hidden=[99999999999]"}, "model.hidden has 99999999999, which is absurd"},
      {{"model.kind=convnet", "model.channels=[]"}, "model.channels is empty"},
      {{"model.kind=convnet", "model.norm=layer"}, "model.norm \"layer\" is unknown"},
      {{"model.activation=swish"}, "model.activation"},
      {{"model.dropout=1"}, "model.dropout is 1; it must lie in [0, 1)"},
      {{"model.dropout=-0.1"}, "model.dropout is -0.1"},
      {{"model.outputs=-1"}, "model.outputs is -1"},
      {{"model.loss=mse", "model.label_smoothing=0.1"}, "model.label_smoothing needs"},
      {{"model.channels=[8]"}, "model.channels has no meaning for model.kind \"mlp\"; drop it"},
      {{"model.options.a=1"}, "model.options has no meaning for model.kind \"mlp\""},
      {{"model.kind=convnet", "model.hidden=[8]"}, "model.hidden has no meaning"},
      {{"model.memory_format=channels_last"}, "model.memory_format has no meaning"},
      {{"model.kind=convnet", "model.memory_format=nhwc"}, "model.memory_format \"nhwc\""},
  });
  EXPECT_EQ(parse(kGood, {"model.kind=own", "model.channels=[8]"}).model.channels.size(), 1u);
}

TEST(Validate, refuses_transformers_and_samples_that_cannot_be) {
  expect_refused({
      {{"model.num_heads=4"}, "model.num_heads has no meaning for model.kind \"mlp\"; drop it"},
      {{"generate.tokens=4"}, "generate.tokens has no meaning for model.kind \"mlp\"; drop it"},
      {{"model.task=classify"}, "model.task has no meaning for model.kind \"mlp\"; drop it"},
  });
  const Cases cases = {
      {{"model.size=gpt3"}, "model.size \"gpt3\" is unknown; one of gpt2, distilgpt2"},
      {{"model.size=medium"}, "(here it is gpt2-medium)"},
      {{"model.num_layers=-1"}, "model.num_layers is -1; it must lie in [0, 4096]"},
      {{"model.num_heads=-2"}, "model.num_heads is -2"},
      {{"model.hidden_size=-8"}, "model.hidden_size is -8"},
      {{"model.intermediate_size=99999999999"}, "model.intermediate_size"},
      {{"model.context_length=-1"}, "model.context_length is -1"},
      {{"model.vocab_size=-1"}, "model.vocab_size is -1"},
      {{"model.attention_dropout=1"}, "model.attention_dropout is 1; it must lie in [0, 1)"},
      {{"model.embedding_dropout=-1"}, "model.embedding_dropout is -1"},
      {{"model.residual_dropout=2"}, "model.residual_dropout is 2"},
      {{"model.layer_norm_eps=0"}, "model.layer_norm_eps is 0; it must be positive"},
      {{"model.initializer_range=0"}, "model.initializer_range is 0; it must be positive"},
      {{"model.outputs=3"}, "model.outputs has no meaning for model.task \"next_token\"; drop it"},
      {{"model.loss=mse"}, "model.loss has no meaning for model.task \"next_token\"; drop it"},
      {{"model.n_layer=3"}, "unknown key model.n_layer; here it is model.num_layers"},
      {{"model.block_size=3"}, "unknown key model.block_size; here it is model.context_length"},
      {{"generate.tokens=-1"}, "generate.tokens is -1"},
      {{"generate.temperature=-1"}, "generate.temperature is -1"},
      {{"generate.top_k=-1"}, "generate.top_k is -1"},
      {{"generate.top_p=0"}, "generate.top_p is 0; it must lie in (0, 1]"},
      {{"generate.seed=-1"}, "generate.seed is -1"},
      {{"predict.scores=some"}, "predict.scores \"some\" is unknown; one of best, all"},
      {{"predict.broken=drop"}, "predict.broken \"drop\" is unknown; one of error, skip"},
      {{"generate.num_beams=0"}, "generate.num_beams is 0"},
      {{"generate.stop_token=-2"}, "generate.stop_token is -2"},
      {{"generate.num_beams=4", "generate.top_k=3"}, "num_beams above 1 draws nothing"},
      {{"generate.length_penalty=2.0"}, "length_penalty has no meaning"},
      {{"generate.num_beams=4", "generate.length_penalty=2.0"}, "length_penalty has no meaning"},
  };
  for (auto [sets, part] : cases) {
    sets.insert(sets.begin(), "model.kind=gpt2");
    try {
      parse_config(kGood, "run.toml", "/data", sets, {"gpt2"});
      ADD_FAILURE() << "accepted: " << sets.back();
    } catch (const ConfigError& error) {
      expect_contains(error.what(), part);
    }
  }
}

TEST(Validate, refuses_keys_and_sizes_that_are_not_the_models) {
  const auto refused = [](const char* kind, std::vector<std::string> sets, const char* part) {
    sets.insert(sets.begin(), std::string("model.kind=") + kind);
    std::string error = "accepted";
    try {
      parse_config(kGood, "run.toml", "/data", sets, {kind});
    } catch (const ConfigError& refusal) {
      error = refusal.what();
    }
    expect_contains(error, part);
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  };
  refused("resnet", {"model.dropout=0.1"},
          "model.dropout has no meaning for model.kind \"resnet\"");
  refused("resnet", {"model.size=50"}, "(here it is resnet50)");
  refused("vgg", {"model.size=vgg12"}, "model.size \"vgg12\" is unknown; one of vgg11");
  refused("bert", {"model.task=next_token"},
          "model.task \"next_token\" is unknown; one of classify");
  refused("bert", {"model.task=masked_lm", "model.loss=mse"},
          "model.loss has no meaning for model.task \"masked_lm\"");
  refused("bert", {"model.embedding_size=8"}, "model.embedding_size has no meaning");
  refused("bert", {"model.pad_token=-2"}, "model.pad_token is -2");
  refused("bert", {"model.type_vocab_size=2"}, "here it is model.token_types");
  refused("bert", {"model.activation=gelu_new"}, "(here it is gelu_tanh)");
  refused("bert", {"model.from_hf=bert-base-cased", "model.init_from=a.pt"},
          "model.init_from and model.from_hf both give the weights; drop one");
  refused("bert", {"model.from_hf=bert-base-cased", "model.size=bert-tiny"},
          "model.size has no meaning for model.from_hf \"bert-base-cased\"");
  refused("bert", {"model.model_name_or_path=x"}, "here it is model.from_hf");
  refused("lstm", {"model.task=mlm"}, "model.task \"mlm\" is unknown");
  refused("lstm", {"model.task=next_token", "model.bidirectional=true"},
          "model.bidirectional has no meaning for model.task \"next_token\"");
  refused("lstm", {"model.classifier_dropout=1"}, "model.classifier_dropout is 1");
}

TEST(Validate, refuses_data_that_cannot_be_read_or_would_be_ignored) {
  const std::string synthetic = "data.train.kind=synthetic", pathless = "data.train.path=";
  expect_refused({
      {{"data.train.kind=json"},
       "data.train.kind \"json\" is unknown; one of csv, images, pairs, tensors"},
      {{pathless}, "data.train.path is missing; name the csv file"},
      {{synthetic, pathless, "data.train.samples=5"}, "data.train.fields is missing"},
      {{synthetic, pathless, "data.train.fields=[a]"}, "data.train.samples is 0"},
      {{synthetic, "data.train.path=a.csv", "data.train.samples=5", "data.train.fields=[a]"},
       "data.train.path has no meaning for data.train.kind \"synthetic\""},
      {{"data.train.samples=5"}, "data.train.samples has no meaning"},
      {{"data.train.kind=tensors", "data.train.scale=2"}, "data.train.scale has no meaning"},
      {{"data.train.shape=[1, -8]"}, "data.train.shape is -8"},
      {{"data.train.shape=[9000000, 9000000]"}, "numbers a sample, which is absurd"},
      {{"data.train.classes=-1"}, "data.train.classes is -1"},
      {{"data.train.scale=0"}, "data.train.scale is 0; it must be finite and not 0"},
      {{"data.train.label_type=value"}, "does not go with model.loss \"cross_entropy\""},
      {{"data.train.label_type=text"}, "data.train.label_type \"text\" is unknown"},
      {{"data.train.scale=0.5", "data.eval.kind=csv", "data.eval.path=e.csv"},
       "data.eval.scale differs from data.train.scale; a model must be evaluated on what it was "
       "trained on: make them equal"},
      {{"data.eval.kind=csv", "data.eval.path=e.csv", "data.eval.offset=-1"},
       "data.eval.offset differs from data.train.offset"},
      {{"data.eval.path=e.csv"}, "data.eval.path is set, data.eval.kind is not"},
      {{"data.eval.label=y"}, "data.eval.label is set, data.eval.kind is not"},
      {{"data.workers=-1"}, "data.workers"},
      {{"data.workers=257"}, "data.workers"},
      {{"data.prefetch=0"}, "data.prefetch is 0; it must lie in [1, 4096]"},
      {{"data.last=some"}, "data.last \"some\" is unknown; one of keep, drop"},
  });
}

TEST(Validate, refuses_batches_that_are_no_batches) {
  expect_refused({
      {{"batch.global_batch=0"}, "batch.global_batch is \"0\"; give a positive whole number"},
      {{"batch.global_batch=-4"}, "batch.global_batch is \"-4\""},
      {{"batch.global_batch=1.5"}, "batch.global_batch is \"1.5\""},
      {{"batch.global_batch=many"}, "batch.global_batch is \"many\""},
      {{"batch.global_batch=9000000000000"}, "batch.global_batch"},
      {{"batch.microbatch=-1"}, "batch.microbatch is -1"},
      {{"batch.microbatch=33"}, "batch.microbatch 33 is larger than batch.global_batch 32"},
  });
  EXPECT_EQ(parse(kGood, {"batch.microbatch=32"}).batch.microbatch, 32);
  EXPECT_EQ(parse(kGood, {"batch.global_batch=epoch", "batch.microbatch=64"}).batch.microbatch, 64);
}

TEST(Validate, refuses_loss_scales_that_cannot_work) {
  expect_refused({
      {{"precision.mode=fp8"}, "one of auto, fp32, bf16, fp16, fp64"},
      {{"precision.initial_scale=-1"}, "precision.initial_scale is \"-1\""},
      {{"precision.initial_scale=0"}, "precision.initial_scale is \"0\""},
      {{"precision.initial_scale=nan"}, "precision.initial_scale is \"nan\""},
      {{"precision.initial_scale=1e300"}, "precision.initial_scale"},
      {{"precision.loss_scale=static", "precision.initial_scale=auto"}, "needs a dynamic"},
      {{"precision.backoff_factor=1"}, "precision.backoff_factor is 1"},
      {{"precision.backoff_factor=0"}, "precision.backoff_factor is 0"},
      {{"precision.growth_factor=1"}, "precision.growth_factor is 1"},
      {{"precision.growth_factor=1e30"}, "precision.growth_factor"},
      {{"precision.growth_interval=0"}, "precision.growth_interval is 0"},
      {{"precision.min_scale=0"}, "precision.min_scale is 0"},
      {{"precision.min_scale=1e9"}, "precision.min_scale 1e+09 is above"},
      {{"precision.mode=fp64", "precision.loss_scale=dynamic"}, "with precision.mode \"fp64\""},
      {{"precision.matmul=low"}, "precision.matmul \"low\" is unknown"},
  });
}

TEST(Validate, refuses_optimizer_settings_that_diverge_or_do_nothing) {
  expect_refused({
      {{"optimizer.kind=lamb"}, "optimizer.kind \"lamb\" is unknown; one of adafactor, adagrad, "},
      {{"optimizer.learning_rate=0"}, "optimizer.learning_rate is 0; it must be positive"},
      {{"optimizer.learning_rate=-1"}, "optimizer.learning_rate is -1"},
      {{"optimizer.learning_rate=1e9"}, "optimizer.learning_rate is 1e+09"},
      {{"optimizer.weight_decay=-1"}, "optimizer.weight_decay is -1"},
      {{"optimizer.beta1=1"}, "optimizer.beta1 is 1; it must lie in [0, 1)"},
      {{"optimizer.beta2=-0.5"}, "optimizer.beta2 is -0.5"},
      {{"optimizer.eps=0"}, "optimizer.eps is 0"},
      {{"optimizer.momentum=0.9"},
       "optimizer.momentum has no meaning for optimizer.kind \"adamw\""},
      {{"optimizer.kind=sgd", "optimizer.beta1=0.5"}, "optimizer.beta1 has no meaning"},
      {{"optimizer.kind=sgd", "optimizer.momentum=1"}, "optimizer.momentum is 1"},
      {{"optimizer.kind=sgd", "optimizer.nesterov=true"}, "optimizer.nesterov needs a momentum"},
      {{"optimizer.kind=sgd", "optimizer.nesterov=true", "optimizer.momentum=0.9",
        "optimizer.dampening=0.1"},
       "optimizer.nesterov needs a momentum and no dampening"},
      {{"optimizer.groups=[{parameters=[\"*\"], weight_decay=-1}]"},
       "optimizer.groups[0].weight_decay is -1"},
  });
}

TEST(Validate, refuses_the_rest_out_of_range) {
  expect_refused({
      {{"schedule.kind=stp"}, "schedule.kind \"stp\" is unknown"},
      {{"schedule.kind=step"}, "schedule.step_size is 0"},
      {{"schedule.kind=step", "schedule.step_size=3", "schedule.factor=1"},
       "schedule.factor is 1; it must lie in (0, 1)"},
      {{"schedule.power=2"}, "schedule.power has no meaning"},
      {{"schedule.kind=one_cycle", "schedule.warmup_steps=3"},
       "schedule.warmup_steps has no meaning"},
      {{"schedule.kind=one_cycle", "schedule.shape=1-sqrt"}, "schedule.shape \"1-sqrt\""},
      {{"schedule.kind=multi_step"}, "schedule.milestones is empty"},
      {{"schedule.kind=multi_step", "schedule.milestones=[4, 4]"}, "they must rise"},
      {{"schedule.kind=cosine_with_restarts", "schedule.cycles=0"}, "schedule.cycles is 0"},
      {{"schedule.kind=reduce_on_plateau", "evaluate.every=2"}, "there is no [data.eval]"},
      {{"schedule.kind=reduce_on_plateau", "data.eval.kind=csv", "data.eval.path=e"},
       "evaluate.every is 0"},
      {{"schedule.kind=reduce_on_plateau", "data.eval.kind=csv", "data.eval.path=e",
        "evaluate.every=2", "schedule.metric=top3"},
       "schedule.metric \"top3\" is unknown"},
      {{"clip.value=-1"}, "clip.value is -1"},
      {{"optimizer.layer_decay=1.5"}, "optimizer.layer_decay is 1.5; it must lie in (0, 1]"},
      {{"optimizer.layers=[a]"}, "optimizer.layers does nothing while"},
      {{"optimizer.kind=lion", "optimizer.eps=1e-5"}, "optimizer.eps has no meaning"},
      {{"optimizer.kind=rmsprop", "optimizer.alpha=1"}, "optimizer.alpha is 1"},
      {{"optimizer.kind=adafactor", "optimizer.beta2_decay=0.5"}, "optimizer.beta2_decay is 0.5"},
      {{"optimizer.kind=muon", "optimizer.newton_schulz_steps=0"},
       "optimizer.newton_schulz_steps is 0"},
      {{"schedule.warmup_steps=-1"}, "schedule.warmup_steps is -1"},
      {{"schedule.kind=linear", "schedule.final_fraction=2"},
       "schedule.final_fraction is 2; it must lie in [0, 1]"},
      {{"clip.norm=-1"}, "clip.norm is -1"},
      {{"guard.nan_loss=ignore"}, "guard.nan_loss \"ignore\" is unknown; one of stop, skip"},
      {{"guard.nan_gradient=ignore"}, "guard.nan_gradient"},
      {{"guard.max_skips=0"}, "guard.max_skips is 0"},
      {{"guard.spike_z=-1"}, "guard.spike_z is -1"},
      {{"guard.spike_window=1"}, "guard.spike_window is 1"},
      {{"guard.spike_z=0", "guard.spike_window=50"}, "guard.spike_window"},
      {{"guard.growth_steps=-1"}, "guard.growth_steps is -1"},
      {{"memory.allocator=jemalloc"},
       "memory.allocator \"jemalloc\" is unknown; one of auto, cached, default"},
      {{"optimizer.state=4bit"}, "optimizer.state \"4bit\" is unknown; one of fp32, bf16, 8bit"},
      {{"optimizer.state=8bit", "optimizer.amsgrad=true"},
       "optimizer.amsgrad keeps a third moment"},
      {{"optimizer.fp32_state=[a]"}, "optimizer.fp32_state"},
      {{"precision.mode=fp64", "optimizer.state=8bit"}, "rounds what precision.mode \"fp64\""},
      {{"optimizer.kind=sgd", "optimizer.state=8bit"}, "optimizer.state"},
      {{"memory.limit=lots"}, "memory.limit \"lots\" is no amount of memory; write bytes"},
      {{"memory.limit=-1"}, "memory.limit \"-1\" is no amount of memory"},
      {{"memory.limit=1.5"}, "memory.limit \"1.5\" is no amount of memory"},
      {{"memory.release_cache=always"}, "memory.release_cache \"always\" is unknown; one of never"},
      {{"memory.recovery=maybe"}, "memory.recovery \"maybe\" is unknown; one of auto, split"},
      {{"evaluate.every=-1"}, "evaluate.every is -1"},
      {{"evaluate.batch=-1"}, "evaluate.batch is -1"},
      {{"evaluate.metrics=[topx]"}, "evaluate.metrics has \"topx\""},
      {{"evaluate.metrics=[top0]"}, "evaluate.metrics has \"top0\""},
      {{"evaluate.metrics=[top5, top5]"}, "evaluate.metrics has \"top5\" twice"},
      {{"checkpoint.every=-1"}, "checkpoint.every is -1"},
      {{"checkpoint.keep=0"}, "checkpoint.keep is 0"},
      {{"metrics.console_every=0"}, "metrics.console_every is 0"},
      {{"metrics.tensorboard_every=0"}, "metrics.tensorboard_every is 0"},
      {{"evaluate.metrics=[f1]"}, "f1_macro, f1_micro, or f1_binary"},
  });
}

const std::vector<std::string> kEvaluates = {"data.eval.kind=csv", "data.eval.path=e.csv",
                                             "evaluate.every=2"};

std::vector<std::string> evaluating(std::vector<std::string> sets) {
  sets.insert(sets.begin(), kEvaluates.begin(), kEvaluates.end());
  return sets;
}

TEST(Validate, refuses_to_rank_or_stop_by_what_is_not_measured) {
  const std::string eval = "data.eval.kind=csv", path = "data.eval.path=e.csv";
  expect_refused({
      {{"checkpoint.best=-1"}, "checkpoint.best is -1"},
      {{"checkpoint.best=2"}, "checkpoint.best needs evaluations while training; add [data.eval]"},
      {{eval, path, "checkpoint.best=2"}, "checkpoint.best needs evaluations while training; set"},
      {evaluating({"checkpoint.best=2", "checkpoint.metric=acuracy"}),
       "checkpoint.metric \"acuracy\" is not measured; one of loss, accuracy (nearest: accuracy)"},
      {evaluating({"checkpoint.best=2", "checkpoint.metric=top5"}), "add it to evaluate.metrics"},
      {evaluating({"checkpoint.best=2", "checkpoint.mode=up"}), "checkpoint.mode \"up\""},
      {{"checkpoint.metric=accuracy"}, "checkpoint.metric has no meaning for checkpoint.best"},
      {evaluating({"early_stop.patience=-1"}), "early_stop.patience is -1"},
      {{"early_stop.patience=3"}, "early_stop.patience needs evaluations while training; add"},
      {evaluating({"early_stop.patience=3", "early_stop.metric=f2"}), "early_stop.metric \"f2\""},
      {evaluating({"early_stop.patience=3", "early_stop.min_delta=-1"}),
       "early_stop.min_delta is -1"},
      {evaluating({"early_stop.patience=3", "early_stop.start=-1"}), "early_stop.start is -1"},
      {{"early_stop.min_delta=1"}, "early_stop.min_delta has no meaning for early_stop.patience"},
      {{"evaluate.checkpoint=newest"}, "evaluate.checkpoint is \"newest\""},
      {{"evaluate.checkpoint=step-x"}, "evaluate.checkpoint is \"step-x\""},
  });
  EXPECT_EQ(error_of(kGood, evaluating({"checkpoint.best=1", "early_stop.patience=1",
                                        "evaluate.metrics=[top3]", "early_stop.metric=top3"})),
            "accepted");
}

TEST(Validate, refuses_averages_that_cannot_be_or_would_be_ignored) {
  expect_refused({
      {{"average.kind=mean"}, "average.kind \"mean\" is unknown; one of none, ema, swa"},
      {{"average.kind=ema", "average.decay=1"}, "average.decay is 1; it must lie in [0, 1)"},
      {{"average.kind=ema", "average.every=0"}, "average.every is 0"},
      {{"average.kind=ema", "average.start=-1"}, "average.start is \"-1\""},
      {{"average.kind=ema", "average.start=1.5"}, "average.start is \"1.5\""},
      {{"average.kind=ema", "run.epochs=none", "run.steps=5", "average.start=5"},
       "average.start 5 lies past the run's end"},
      {{"average.kind=ema", "average.buffers=none"}, "average.buffers \"none\" is unknown"},
      {{"average.decay=0.5"}, "average.decay has no meaning for average.kind \"none\""},
      {{"average.kind=ema", "average.learning_rate=0.1"}, "average.learning_rate has no meaning"},
      {{"average.kind=swa", "average.decay=0.5"}, "average.decay has no meaning"},
      {{"average.kind=ema", "average.estimate_batches=5"}, "average.estimate_batches has no"},
  });
}

TEST(Validate, refuses_8_bit_layers_that_cannot_be_and_keys_that_would_be_ignored) {
  const std::string is_static = "quantize.scheme=static";
  expect_refused({
      {{"quantize.scheme=int8"},
       "quantize.scheme \"int8\" is unknown; one of none, weights, dynamic, static"},
      {{is_static, "quantize.samples=7"}, "quantize.samples is 7; it must be at least 8"},
      {{is_static, "quantize.range=max"}, "quantize.range \"max\" is unknown; one of mse, minmax"},
      {{is_static, "quantize.tolerance=-1"}, "quantize.tolerance is -1; it must be 0 or more"},
      {{is_static, "precision.level=O1"}, "precision.level is \"O1\"; drop one of them"},
      {{is_static, "parallel.pipeline=2"}, "needs the whole model on one rank"},
      {{"quantize.scheme=dynamic", "quantize.range=minmax"},
       "quantize.range has no meaning for quantize.scheme \"dynamic\""},
  });
  EXPECT_EQ(error_of(kGood, {is_static, "quantize.keep=[\"a.*\"]", "quantize.samples=8",
                             "quantize.range=minmax", "quantize.tolerance=0"}),
            "accepted");
  EXPECT_EQ(error_of(kGood, {is_static, "precision.level=O0"}), "accepted");
}

TEST(MetricMode, knows_which_way_is_better_or_asks) {
  EXPECT_EQ(lower_is_better("loss", "auto"), true);
  EXPECT_EQ(lower_is_better("top5", "auto"), false);
  EXPECT_EQ(lower_is_better("accuracy", "min"), true);
  EXPECT_EQ(lower_is_better("own", "auto"), std::nullopt);
  EXPECT_EQ(lower_is_better("own", "max"), false);
}

// Programs fill the struct themselves, past the reader's check of numbers.
TEST(Validate, finds_numbers_that_are_not_in_a_config_made_by_a_program) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf}) {
    RunConfig config = parse(kGood);
    config.model.dropout = config.optimizer.learning_rate = bad;
    config.optimizer.weight_decay = config.optimizer.eps = bad;
    config.optimizer.beta1 = config.clip.norm = config.clip.value = bad;
    config.optimizer.layer_decay = config.schedule.factor = config.schedule.cycle_growth = bad;
    config.schedule.final_fraction = config.precision.growth_factor = bad;
    config.precision.backoff_factor = config.data.train.scale = config.data.train.offset = bad;
    EXPECT_EQ(validate(config, {"mlp"}).size(), 18u);
  }
  EXPECT_TRUE(validate(parse(kGood), {"mlp"}).empty());
}

TEST(Validate, leaves_the_keys_of_a_registered_kind_of_data_to_it) {
  RunConfig config = parse(kGood);
  config.data.train.kind = "mine";
  config.data.train.samples = 3;
  config.data.train.fields = {"x"};
  const auto problems = validate(config, {"mlp"});
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems.front().find("data.train.kind \"mine\" is unknown"), std::string::npos);
  EXPECT_TRUE(validate(config, KnownKinds({"mlp"}, {"mine"})).empty());
}

TEST(Validate, knows_the_words_of_every_key_that_takes_one_of_a_few) {
  auto sets = closed_sets({"mlp", "mine", "gpt2", "resnet"});
  EXPECT_EQ(sets.count("run.name"), 0u);
  EXPECT_EQ(sets.count("clip.norm"), 0u);
  EXPECT_EQ(sets["model.kind"], (std::vector<std::string>{"mlp", "mine", "gpt2", "resnet"}));
  EXPECT_EQ(sets["run.deterministic"], (std::vector<std::string>{"true", "false"}));
  // Checked for some kinds only.
  EXPECT_EQ(sets["data.train.crop"],
            (std::vector<std::string>{"center", "none", "random", "shift"}));
  EXPECT_EQ(sets["data.eval.crop"], (std::vector<std::string>{"center", "none"}));
  for (const char* size : {"gpt2-xl", "resnet18"}) {
    EXPECT_EQ(std::count(sets["model.size"].begin(), sets["model.size"].end(), size), 1) << size;
  }
  for (const char* key : {"run.device", "precision.mode", "optimizer.kind", "schedule.kind",
                          "data.last", "guard.nan_loss", "data.eval.kind"}) {
    EXPECT_GE(sets[key].size(), 2u) << key;
  }
}

}  // namespace
}  // namespace tanren
