// No option is ignored: every key has a row that sets it and shows that the plan's values, the
// training, the log, the checkpoints or the error of a run change. A key without a row fails the
// test.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/describe.h"
#include "tanren/config/read_config.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/plan/planner.h"
#include "tanren/run/run.h"
#include "tests/options/keys_elsewhere.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

using Sets = std::vector<std::string>;

Sets operator+(const Sets& a, const Sets& b) {
  Sets both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

// The visible outcome of a run: its log without times, weights and optimizer of its last
// checkpoint, the list of checkpoints, and how the run ended.
std::string outcome_of_run(const RunConfig& config) {
  const TemporaryFolder folder;
  std::ostringstream seen;
  try {
    const auto output = run({.config = config, .folder = folder.path() / "run"}, ModelRegistry());
    seen << output.summary.status << ' ' << output.summary.steps << '\n';
  } catch (const Error& error) {
    const static std::regex place("/[^ ]*/");
    seen << std::regex_replace(error.what(), place, "") << '\n';
  }
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder.path() / "run", none)) {
    seen << entry.path().filename().string() << '\n';
  }
  const auto log = folder.path() / "run" / "log.jsonl";
  if (fs::exists(log)) {
    static const std::regex timing(R"(,"timing":\{[^}]*\})");
    seen << std::regex_replace(read_file(log), timing, "");
  }
  const auto checkpoints = folder.path() / "run" / "checkpoints";
  if (!fs::exists(checkpoints)) return seen.str();
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    names.insert(entry.path().filename().string());
  }
  for (const auto& name : names) seen << name << ' ';
  if (const auto latest = latest_checkpoint(checkpoints)) {
    const auto snapshot = read_checkpoint(*latest);
    for (const auto* state : {&snapshot.model, &snapshot.optimizer}) {
      for (const auto& [name, tensor] : state->tensors) {
        seen << name << ' ' << tensor.to(at::kDouble).abs().sum().item<double>() << '\n';
      }
    }
  }
  return seen.str();
}

ModelBlocks three_blocks() {
  ModelBlocks model;
  for (const char* name : {"a", "b", "c"}) {
    BlockCost block;
    block.name = name;
    block.forward = name[0] == 'c' ? 2 : 1;
    model.blocks.push_back(block);
  }
  return model;
}

// The values that the plan prints for `machine`, without sources and reasons.
std::string outcome_of_plan(const RunConfig& config, const Machine& machine) {
  const ModelProfile profile{.num_parameters = 100,
                             .num_trainable = 100,
                             .train_samples = 12,
                             .eval_samples = 12,
                             .blocks = three_blocks()};
  std::string seen;
  try {
    for (const auto& line : make_plan(config, machine, profile).lines) {
      seen += line.key + " " + line.value + "\n";
    }
  } catch (const Error& error) {
    seen = error.what();
  }
  return seen;
}

struct Row {
  std::string key;
  Sets base;           // settings under which the key has an effect
  std::string change;  // the value to set
  enum class Seen { run, plan, plan_cuda, plan_ranks } seen = Seen::run;
};

constexpr auto kPlan = Row::Seen::plan;
constexpr auto kPlanCuda = Row::Seen::plan_cuda;
constexpr auto kPlanRanks = Row::Seen::plan_ranks;

const Sets kConvnet = {"model.kind=convnet", "model.hidden=[128,128]", "model.channels=[4]",
                       "data.train.shape=[1,2,3]", "data.eval.shape=[1,2,3]"};
const Sets kSynthetic = {
    "data.train.kind=synthetic",
    "data.train.path=",
    "data.train.classes=0",
    R"(data.train.fields=["inputs: float[6] in [-1, 1]", "labels: int[] in [0, 2]"])",
    "data.train.samples=12",
    "data.eval.kind=",
    "data.eval.path=",
    "data.eval.classes=0"};
const Sets kImages = {"data.train.kind=images", "data.train.path=pictures", "data.train.classes=0",
                      "data.train.size=[8]",    "data.eval.kind=",          "data.eval.path=",
                      "data.eval.classes=0"};
const Sets kPairs = {
    "data.train.kind=pairs", "data.train.path=pairs", "data.train.classes=0", "data.train.size=[8]",
    "data.eval.kind=",       "data.eval.path=",       "data.eval.classes=0",  "model.loss=l1"};
const Sets kResnet = {"model.kind=resnet",      "model.hidden=[128,128]",
                      "data.train.kind=images", "data.train.path=pictures",
                      "data.train.classes=0",   "data.train.size=[8]",
                      "data.eval.kind=",        "data.eval.path=",
                      "data.eval.classes=0",    "run.steps=1",
                      "optimizer.kind=sgd",     "optimizer.learning_rate=0.01"};
// Pairs of pictures.
const Sets kPictures = {
    "model.kind=pix2pixhd",
    "model.hidden=[128,128]",
    "model.generator_channels=2",
    "model.num_downsamplings=1",
    "model.num_blocks=1",
    "model.discriminator_channels=2",
    "data.train.kind=synthetic",
    "data.train.path=",
    "data.train.classes=0",
    "data.train.fields=[\"inputs: float[3,16,16] in [-1, 1]\", \"labels: float[3,16,16] in [-1, "
    "1]\"]",
    "data.train.samples=12",
    "data.eval.kind=",
    "data.eval.path=",
    "data.eval.classes=0",
    "evaluate.metrics=[]"};
// Token sequences with class labels.
const Sets kTokens = {
    "model.hidden=[128,128]",
    "data.train.kind=synthetic",
    "data.train.path=",
    "data.train.classes=0",
    "data.train.fields=[\"inputs: int[7] in [0, 9]\", \"labels: int[] in [0, 2]\"]",
    "data.train.samples=12",
    "data.eval.kind=",
    "data.eval.path=",
    "data.eval.classes=0"};
const Sets kLstm = kTokens + Sets{"model.kind=lstm", "model.hidden_size=6"};
const Sets kBert = kTokens + Sets{"model.kind=bert", "model.num_layers=1", "model.num_heads=1",
                                  "model.hidden_size=8", "model.context_length=8"};
const Sets kGpt2 = kTokens + Sets{"model.kind=gpt2",
                                  "model.num_layers=1",
                                  "model.num_heads=1",
                                  "model.hidden_size=8",
                                  "model.context_length=8",
                                  "model.task=classify",
                                  "model.attention_dropout=0.5"};
const Sets kTokenFiles = {
    "model.kind=gpt2",        "model.hidden=[128,128]",    "model.num_layers=1",
    "model.num_heads=1",      "model.hidden_size=8",       "model.context_length=32",
    "data.train.kind=tokens", "data.train.path=ids",       "data.train.classes=0",
    "data.train.context=12",  "data.train.vocab_size=500", "data.eval.kind=",
    "data.eval.path=",        "data.eval.classes=0"};
constexpr const char* kBpe = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json";
const Sets kTable = {"model.kind=lstm",           "model.hidden=[128,128]",
                     "model.hidden_size=6",       "data.train.kind=text_table",
                     "data.train.path=texts.csv", "data.train.classes=0",
                     "data.train.context=12",     "data.train.tokenizer=vocab.txt",
                     "data.eval.kind=",           "data.eval.path=",
                     "data.eval.classes=0"};
const Sets kNoEval = {"data.eval.kind=", "data.eval.path=", "data.eval.classes=0"};
const Sets kValues = {"data.train.label_type=value", "data.train.classes=0", "model.loss=mse",
                      "data.eval.label_type=value",  "data.eval.classes=0",  "evaluate.metrics=[]"};
const Sets kHalf = {"precision.mode=fp16"};
const Sets kOverflowing = {"precision.mode=fp16", "precision.initial_scale=1.6e31"};
const Sets kO0 = {"precision.mode=auto", "precision.level=O0"};
const Sets kO2 = {"precision.mode=bf16", "precision.level=O2"};
const Sets kSgd = {"optimizer.kind=sgd", "optimizer.learning_rate=0.01"};
const Sets kMomentum = {"optimizer.kind=sgd", "optimizer.learning_rate=0.01",
                        "optimizer.momentum=0.9"};
const Sets kEma = {"average.kind=ema"};
const Sets kSwa = {"average.kind=swa", "average.start=1"};
const Sets kStatic = {"quantize.scheme=static"};
const Sets kStops = {"evaluate.every=1", "early_stop.patience=1"};
const Sets kCosine = {"schedule.kind=cosine"};
const Sets kNadam = {"optimizer.kind=nadam", "optimizer.weight_decay=0.5"};
const Sets kAdafactor = {"optimizer.kind=adafactor"};
const Sets kMuon = {"optimizer.kind=muon"};
// An evaluation per update; only the first is an improvement.
const Sets kPlateau = {"schedule.kind=reduce_on_plateau", "evaluate.every=1", "schedule.patience=0",
                       "schedule.threshold=0.9", "run.steps=6"};
const Sets kImproving = {"schedule.kind=reduce_on_plateau", "evaluate.every=1",
                         "schedule.patience=0", "schedule.threshold=0", "run.steps=6"};

// Targets of 1e30, whose squared loss is infinite.
Sets infinite_loss() {
  return kNoEval + Sets{"data.train.label_type=value", "data.train.classes=0",  "model.loss=mse",
                        "evaluate.metrics=[]",         "data.train.scale=1e30", "model.hidden=[]"};
}
// A finite loss with infinite gradients: the scale cannot fall below its floor.
Sets infinite_gradient() {
  return kOverflowing + Sets{"precision.loss_scale=static", "precision.growth_interval=2000"};
}

std::vector<Row> rows() {
  return {
      {"run.seed", {}, "1"},
      {"run.steps", {}, "5"},
      {"run.epochs", {"run.steps=none", "run.epochs=1"}, "2"},
      {"run.device", {"run.device=cpu"}, "cuda", kPlanCuda},
      {"run.threads", {}, "2", kPlan},
      {"run.deterministic", {}, "true", kPlan},
      {"run.stop_after", {}, "2"},
      {"run.max_time", {}, "0.001"},
      {"run.fork_from", {}, "absent"},
      {"model.kind",
       {"data.train.shape=[1,2,3]", "data.eval.shape=[1,2,3]", "model.hidden=[128,128]"},
       "convnet"},
      {"model.path", {"model.kind=torchscript", "model.hidden=[128,128]"}, "absent.pt"},
      {"model.hidden", {}, "[7]"},
      {"model.channels", kConvnet, "[8]"},
      {"model.norm", kConvnet, "batch"},
      {"model.activation", {}, "tanh"},
      {"model.dropout", {}, "0.4"},
      {"model.outputs", {}, "4"},
      {"model.loss", kValues, "l1"},
      {"model.size", kResnet, "resnet34"},
      {"model.generator_channels", kPictures, "3"},
      {"model.num_downsamplings", kPictures, "2"},
      {"model.num_blocks", kPictures, "2"},
      {"model.num_enhancers", kPictures + Sets{"model.size=local"}, "2"},
      {"model.enhancer_blocks", kPictures + Sets{"model.size=local"}, "0"},
      {"model.discriminators", kPictures, "1"},
      {"model.discriminator_channels", kPictures, "3"},
      {"model.discriminator_layers", kPictures, "2"},
      {"model.perceptual", kPictures, "vgg19.pth"},
      {"model.num_layers", kLstm, "2"},
      {"model.hidden_size", kLstm, "5"},
      {"model.intermediate_size", kBert, "9"},
      {"model.num_heads", kBert, "2"},
      {"model.context_length", kBert, "9"},
      {"model.vocab_size", kBert, "12"},
      {"model.embedding_dropout", kBert, "0.5"},
      {"model.attention_dropout", kBert, "0.5"},
      {"model.fused_attention_dropout", kGpt2, "true"},
      {"model.residual_dropout", kBert, "0.5"},
      {"model.classifier_dropout", kBert, "0.5"},
      {"model.layer_norm_eps", kBert, "0.1"},
      {"model.initializer_range", kBert, "0.1"},
      {"model.token_types", kBert, "3"},
      {"model.pad_token", kBert, "4"},
      {"model.embedding_size", kLstm, "5"},
      {"model.bidirectional", kLstm, "true"},
      {"model.append_head", {"model.outputs=5"}, "3"},
      {"model.init_from", {}, "absent.pt"},
      {"model.freeze", {}, "[hidden.*]"},
      {"model.unfreeze", {"model.freeze=[hidden.*]"}, "[{parameters = [\"hidden.*\"], step = 1}]"},
      {"model.label_smoothing", {}, "0.1"},
      {"model.loss_chunk", kTokenFiles, "5"},
      {"data.train.kind", {}, "tensors"},
      {"data.train.label", {}, "f"},
      {"data.train.label_type",
       {"model.loss=mse", "data.train.classes=0", "data.eval.classes=0", "evaluate.metrics=[]"},
       "value"},
      {"data.train.shape", kConvnet, "[1,3,2]"},
      {"data.train.scale", kNoEval, "2"},
      {"data.train.offset", kNoEval, "1"},
      {"data.train.classes", {}, "4"},
      {"data.train.columns", {}, "[a, b, c]"},
      {"data.train.ignore", {}, "[f]"},
      {"data.train.categories", {}, "[f]"},
      {"data.train.standardize", {}, "true"},
      {"data.train.missing", kNoEval + Sets{"data.train.path=gaps.csv"}, "mean"},
      {"data.train.delimiter", {}, ";"},
      {"data.train.decimal", kNoEval + Sets{"data.train.path=commas.csv"}, ","},
      {"data.train.only_classes", kNoEval, "[1, 2]"},
      {"data.train.fields", kSynthetic,
       "[\"inputs: float[5] in [-1, 1]\", \"labels: int[] in [0, 2]\"]"},
      {"data.train.samples", kSynthetic, "8"},
      {"data.train.size", kImages, "[6]"},
      {"data.train.resize", kImages, "12"},
      {"data.train.crop", kImages, "random"},
      {"data.train.crop_scale", kImages + Sets{"data.train.crop=random"}, "[0.5, 0.6]"},
      {"data.train.crop_ratio", kImages + Sets{"data.train.crop=random"}, "[1, 1]"},
      {"data.train.pad", kImages + Sets{"data.train.crop=shift"}, "2"},
      {"data.train.flip", kImages, "1"},
      {"data.train.color", kImages, "[0.5, 0, 0, 0]"},
      {"data.train.channels", kImages, "1"},
      {"data.train.mean", kImages, "[0.5, 0.5, 0.5]"},
      {"data.train.std", kImages, "[0.5, 0.5, 0.5]"},
      {"data.train.max_pixels", kImages, "200"},
      {"data.train.broken", kImages + Sets{"data.train.path=broken"}, "skip"},
      {"data.train.side_by_side", kPairs, "true"},
      {"data.train.swap", kPairs, "true"},
      {"data.train.filter", kPairs, "nearest"},
      {"data.train.target_filter", kPairs, "bicubic"},
      {"data.train.target_channels", kPairs, "1"},
      {"data.train.context", kTokenFiles, "10"},
      {"data.train.stride", kTokenFiles, "5"},
      {"data.train.include", kTokenFiles, "[\"a*\"]"},
      {"data.train.exclude", kTokenFiles, "[\"a*\"]"},
      {"data.train.part", kTokenFiles, "[0, 0.5]"},
      {"data.train.dtype", kTokenFiles, "uint8"},
      {"data.train.vocab_size", kTokenFiles, "600"},
      {"data.train.document_end", kTokenFiles, "56"},
      {"data.train.document_end_token",
       kTokenFiles + Sets{std::string("data.train.tokenizer=") + kBpe, "data.train.vocab_size=0"},
       "X"},
      {"data.train.text", kTable, "other"},
      {"data.train.text_pair", kTable, "other"},
      {"data.train.tokenizer", kTable, "cased.txt"},
      {"data.train.class_names", kTable, "[\"2\", \"1\", \"0\"]"},
      {"data.shuffle", {}, "false"},
      {"data.split", kNoEval, "0.25"},
      {"data.last", {"run.steps=none", "run.epochs=1"}, "drop"},
      {"batch.global_batch", {}, "6"},
      {"batch.microbatch", {}, "2"},
      {"precision.mode", {}, "bf16"},
      {"precision.level", {"precision.mode=bf16"}, "O2"},
      {"precision.cast_model_type", kO0, "bf16"},
      {"precision.patch_torch_functions", {"precision.mode=bf16", "precision.level=O1"}, "false"},
      {"precision.keep_batchnorm_fp32", kConvnet + Sets{"model.norm=batch"} + kO2, "false"},
      {"precision.master_weights", kO2, "false"},
      {"precision.cast_model_outputs", kValues + Sets{"evaluate.metrics=[\"mse\"]"} + kO0, "bf16"},
      {"precision.loss_scale", kOverflowing, "static"},
      {"precision.initial_scale", kHalf, "1024"},
      {"precision.growth_factor", kHalf + Sets{"precision.growth_interval=1"}, "4"},
      {"precision.backoff_factor", kOverflowing, "0.25"},
      {"precision.growth_interval", kHalf, "1"},
      {"precision.min_scale", kOverflowing, "1e31"},
      {"precision.max_scale", kHalf + Sets{"precision.growth_interval=1"}, "65536"},
      {"precision.report_flush", {}, "true"},
      {"precision.matmul", {}, "high", kPlan},
      {"precision.cudnn_benchmark", {"run.device=cuda"}, "true", kPlanCuda},
      {"optimizer.kind", {}, "sgd"},
      {"optimizer.learning_rate", {}, "0.002"},
      {"optimizer.weight_decay", {}, "0.5"},
      {"optimizer.beta1", {}, "0.5"},
      {"optimizer.beta2", {}, "0.5"},
      {"optimizer.eps", {}, "0.1"},
      {"optimizer.momentum", kSgd, "0.9"},
      {"optimizer.dampening", kMomentum, "0.5"},
      {"optimizer.nesterov", kMomentum, "true"},
      {"optimizer.decay_norms_and_biases", {"optimizer.weight_decay=0.5"}, "false"},
      {"optimizer.groups", {}, "[{parameters = [\"*\"], learning_rate_scale = 0.1}]"},
      {"optimizer.layer_decay", {}, "0.5"},
      {"optimizer.layers", {"optimizer.layer_decay=0.5"}, "[\"*.bias\"]"},
      {"optimizer.state", {"model.hidden=[128,128]"}, "8bit"},
      {"optimizer.fp32_state",
       {"model.hidden=[128,128]", "optimizer.state=8bit"},
       "[\"*.weight\"]"},
      {"optimizer.amsgrad", {"optimizer.beta2=0.1"}, "true"},
      {"optimizer.decoupled_weight_decay", kNadam, "true"},
      {"optimizer.momentum_decay", kNadam, "2"},
      {"optimizer.alpha", {"optimizer.kind=rmsprop"}, "0.5"},
      {"optimizer.centered", {"optimizer.kind=rmsprop"}, "true"},
      {"optimizer.learning_rate_decay", {"optimizer.kind=adagrad"}, "0.5"},
      {"optimizer.initial_accumulator", {"optimizer.kind=adagrad"}, "2"},
      {"optimizer.beta2_decay", kAdafactor, "-0.3"},
      {"optimizer.clip_threshold", kAdafactor, "1.001"},
      {"optimizer.scale_floor", kAdafactor, "5"},
      {"optimizer.relative_step", kAdafactor, "false"},
      {"optimizer.newton_schulz_steps", kMuon, "2"},
      {"optimizer.adjust_learning_rate", kMuon, "original"},
      {"optimizer.adamw_parameters", kMuon, "[\"hidden.*\"]"},
      {"schedule.kind", {}, "linear"},
      {"schedule.warmup_steps", {}, "3"},
      {"schedule.final_fraction", kCosine, "0.5"},
      {"schedule.cycles", {"schedule.kind=cosine_with_restarts"}, "2"},
      {"schedule.cycle_growth", {"schedule.kind=cosine_with_restarts", "schedule.cycles=2"}, "3"},
      {"schedule.power", {"schedule.kind=polynomial"}, "2"},
      {"schedule.timescale", {"schedule.kind=inverse_sqrt"}, "2"},
      {"schedule.step_size", {"schedule.kind=step", "schedule.step_size=1"}, "2"},
      {"schedule.milestones", {"schedule.kind=multi_step", "schedule.milestones=[1]"}, "[2]"},
      {"schedule.factor", {"schedule.kind=step", "schedule.step_size=1"}, "0.5"},
      {"schedule.warmup_fraction", {"schedule.kind=one_cycle"}, "0.8"},
      {"schedule.div_factor", {"schedule.kind=one_cycle"}, "3"},
      {"schedule.final_div_factor", {"schedule.kind=one_cycle"}, "2"},
      {"schedule.shape", {"schedule.kind=one_cycle", "run.steps=9"}, "linear"},
      {"schedule.decay_steps", {"schedule.kind=warmup_stable_decay"}, "3"},
      {"schedule.metric", kImproving + Sets{"evaluate.metrics=[top2]"}, "top2"},
      {"schedule.mode", kImproving, "max"},
      {"schedule.patience", kPlateau, "1"},
      {"schedule.threshold", kImproving, "0.9"},
      {"schedule.threshold_mode",
       kPlateau + kValues + Sets{"data.train.scale=100", "data.eval.scale=100"}, "abs"},
      {"schedule.cooldown", kPlateau, "2"},
      {"clip.norm", {}, "0.01"},
      {"clip.value", {}, "0.001"},
      {"guard.nan_loss", infinite_loss(), "skip"},
      {"guard.nan_gradient", infinite_gradient(), "skip"},
      {"guard.max_skips", infinite_loss() + Sets{"guard.nan_loss=skip"}, "2"},
      {"guard.spike_z", {"guard.spike_window=2"}, "0.001"},
      {"guard.spike_window", {"guard.spike_z=0.001"}, "2"},
      {"memory.allocator", {}, "default", kPlan},
      {"memory.limit", {}, "4GiB", kPlan},
      {"memory.recompute", {}, "[\"layers.*\"]", kPlan},
      {"memory.offload", {}, "[\"layers.*\"]", kPlan},
      {"memory.recovery", {}, "off", kPlan},
      {"memory.release_cache", {}, "step", kPlan},
      {"parallel.ranks", {}, "threads", kPlan},
      {"parallel.replicas", {"parallel.ranks=threads"}, "3", kPlan},
      {"parallel.devices", {"parallel.ranks=threads", "run.device=cuda"}, "[1]", kPlanCuda},
      {"parallel.backend", {}, "gloo", kPlanRanks},
      {"parallel.rendezvous", {}, "tcp://localhost:29500", kPlanRanks},
      {"parallel.timeout", {}, "30", kPlanRanks},
      {"parallel.pipeline", {}, "2", kPlanRanks},
      {"parallel.pipeline_schedule", {"parallel.pipeline=2"}, "gpipe", kPlanRanks},
      {"parallel.cut_at", {"parallel.pipeline=2"}, "[\"b\"]", kPlanRanks},
      {"parallel.bucket_mb", {}, "50", kPlanRanks},
      {"parallel.first_bucket_mb", {}, "2", kPlanRanks},
      {"parallel.overlap", {}, "false", kPlanRanks},
      {"parallel.compress", {}, "bf16", kPlanRanks},
      {"parallel.buffers", {}, "first", kPlanRanks},
      {"parallel.buffers", {}, "synchronised", kPlanRanks},
      {"parallel.check_every", {}, "10", kPlanRanks},
      {"parallel.zero", {}, "1", kPlanRanks},
      {"average.kind", {}, "ema"},
      {"average.decay", kEma + Sets{"average.decay_warmup=false"}, "0.5"},
      {"average.decay_warmup", kEma, "false"},
      {"average.every", kEma, "2"},
      {"average.start", kEma, "2"},
      {"average.learning_rate", kSwa, "0.05"},
      {"average.buffers", kEma + kConvnet + Sets{"model.norm=batch"}, "copy"},
      {"average.estimate_batches", kSwa + kConvnet + Sets{"model.norm=batch"}, "1"},
      {"average.evaluate", kEma, "false"},
      {"quantize.scheme", {}, "static"},  // refused so far
      {"quantize.keep", kStatic, "[\"hidden.*\"]", kPlan},
      {"quantize.samples", kStatic, "8", kPlan},
      {"quantize.range", kStatic, "minmax", kPlan},
      {"quantize.tolerance", kStatic, "0.25", kPlan},
      {"evaluate.every", {}, "2"},
      {"evaluate.batch", {}, "3", kPlan},
      {"early_stop.patience", {"evaluate.every=1", "optimizer.learning_rate=1e-30"}, "1"},
      {"early_stop.metric", kStops, "accuracy"},
      {"early_stop.mode", kStops, "max"},
      {"early_stop.min_delta", kStops, "100"},
      {"early_stop.start", kStops + Sets{"early_stop.min_delta=100"}, "3"},
      {"evaluate.metrics", {}, "[top2]"},
      {"checkpoint.every", {}, "2"},
      {"checkpoint.keep", {"checkpoint.every=1"}, "1"},
      {"checkpoint.best", {"evaluate.every=1"}, "1"},
      {"checkpoint.metric", {"evaluate.every=1", "checkpoint.best=1"}, "accuracy"},
      {"checkpoint.mode", {"evaluate.every=1", "checkpoint.best=1"}, "max"},
      {"metrics.jsonl", {}, "false"},
      {"metrics.tensorboard", {}, "false"},
      {"metrics.images_every", kPairs, "2"},
  };
}

class Options : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string rows = "a,b,c,d,e,f,label\n";
    for (int i = 0; i < 12; ++i) {
      for (int j = 0; j < 6; ++j) rows += std::to_string((i * 7 + j * 5) % 11 % 3) + ",";
      rows += std::to_string(i % 3) + "\n";
    }
    folder_.file("rows.csv", rows);
    folder_.file("gaps.csv", "a,b,label\n1,2,0\n,1,1\n2,0,2\n0,1,0\n");
    folder_.file("commas.csv", "a;b;label\n1,5;2;0\n1;1;1\n2;0;2\n0;1;0\n");
    folder_.file("texts.csv", "text,other,label\na b,b,0\nc,a,1\nb c,c,2\na,b,0\n");
    folder_.file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n");
    folder_.file("cased.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nA\nb\n");
    for (const std::string name : {"pictures/cat", "pictures/dog", "broken/cat", "broken/dog"}) {
      fs::create_directories(folder_.path() / name);
      for (int i = 0; i < 3; ++i) {
        folder_.file(name + "/" + std::to_string(i) + ".jpg", make_jpeg(17 + i, 12 + 3 * i));
      }
    }
    folder_.file("broken/cat/empty.jpg", "");
    for (const std::string side : {"inputs", "targets"}) {
      fs::create_directories(folder_.path() / "pairs" / side);
      for (int i = 0; i < 3; ++i) {
        folder_.file("pairs/" + side + "/" + std::to_string(i) + ".jpg",
                     side == "inputs" ? make_jpeg(18, 12 + 3 * i) : make_halves(18, 12 + 3 * i));
      }
    }
    fs::create_directories(folder_.path() / "ids");
    for (const char* name : {"ids/a1", "ids/a2", "ids/b1", "ids/b2"}) {
      std::string ids;  // of 16 bits, below 256
      for (int i = 0; i < 60; ++i) ids += {static_cast<char>(i * 7 % 60 + name[5]), '\0'};
      folder_.file(name, ids);
    }
  }

  RunConfig config_of(const Sets& sets) const {
    const std::string text =
        "[run]\nname = \"options\"\nsteps = 4\nthreads = 1\n"
        "[model]\nkind = \"mlp\"\nhidden = [8]\n"
        "[data.train]\nkind = \"csv\"\npath = \"rows.csv\"\nclasses = 3\n"
        "[data.eval]\nkind = \"csv\"\npath = \"rows.csv\"\nclasses = 3\n"
        "[batch]\nglobal_batch = 5\n[precision]\nmode = \"fp32\"\n";
    const fs::path before = fs::current_path();
    fs::current_path(folder_.path());  // the paths of `sets` are relative to it
    RunConfig config =
        parse_config(text, "options.toml", folder_.path(), sets, ModelRegistry().kinds());
    fs::current_path(before);
    return config;
  }

  static std::string outcome(const RunConfig& config, Row::Seen seen) {
    Machine machine;
    if (seen == kPlanCuda || seen == kPlanRanks) machine.accelerators.bytes = {0, 0};
    machine.accelerators.bf16 = true;
    machine.world_size = machine.local_ranks = seen == kPlanRanks ? 2 : 1;
    return seen == Row::Seen::run ? outcome_of_run(config) : outcome_of_plan(config, machine);
  }

  TemporaryFolder folder_;
};

TEST_F(Options, the_same_config_has_the_same_outcome) {
  const auto config = config_of({});
  EXPECT_EQ(outcome(config, Row::Seen::run), outcome(config, Row::Seen::run));
}

TEST_F(Options, every_key_changes_something) {
  std::set<std::string> shown;
  std::map<std::pair<Sets, Row::Seen>, std::string> of_bases;  // which many rows share
  for (const auto& row : rows()) {
    SCOPED_TRACE(row.key);
    shown.insert(row.key);
    try {
      std::string& before = of_bases[{row.base, row.seen}];
      if (before.empty()) before = outcome(config_of(row.base), row.seen);
      const auto after = outcome(config_of(row.base + Sets{row.key + "=" + row.change}), row.seen);
      EXPECT_TRUE(before != after) << row.key << " = " << row.change << " changes nothing";
    } catch (const ConfigError& error) {
      ADD_FAILURE() << error.what();
    }
  }
  for (const auto& key : all_keys()) {
    // data.eval has the keys of data.train.
    if (key.rfind("data.eval.", 0) == 0) continue;
    EXPECT_TRUE(shown.count(key) + kElsewhere.count(key) == 1)
        << key << " needs one row here that shows what it changes";
  }
}

}  // namespace
}  // namespace tanren::testing
