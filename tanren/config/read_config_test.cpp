#include "tanren/config/read_config.h"

#include "tanren/base/error.h"
#include "tanren/config/describe.h"
#include "tanren/config/fields.h"
#include "tanren/config/identity.h"
#include "tanren/config/value_text.h"
#include "tanren/config/write_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace tanren {
namespace {

const std::vector<std::string> kKinds = {"mlp", "convnet"};

constexpr const char* kGood = R"([run]
epochs = 2
[model]
kind = "mlp"
[data.train]
kind = "csv"
path = "train.csv"
)";

RunConfig parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  return parse_config(text, "run.toml", "/data", sets, kKinds);
}

// The error text of a config that must be refused.
std::string error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    parse(text, sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "in: " << text << "\nmissing: " << part;
}

TEST(ReadConfig, names_file_and_line_of_malformed_toml) {
  expect_contains(error_of("[run]\nepochs = 2\n[model\n"), "run.toml:3");
  expect_contains(error_of("[run]\nepochs = 1\nepochs = 2\n"), "run.toml:3");
  expect_contains(error_of(std::string("\x01\x02\xff garbage", 13)), "[config] run.toml:1");
}

TEST(ReadConfig, names_the_nearest_key_and_the_line_of_an_unknown_one) {
  const auto text = error_of(std::string(kGood) + "[batch]\nmicro_batch = 4\n");
  expect_contains(text, "run.toml:9: unknown key batch.micro_batch; nearest: batch.microbatch");
  expect_contains(error_of(std::string(kGood) + "[run2]\nx = 1\n"), "unknown key run2");
}

TEST(ReadConfig, translates_the_names_people_bring) {
  for (const auto& [key, advice] :
       std::map<std::string, std::string>{{"fp16 = true", "precision.mode = \"fp16\""},
                                          {"gradient_accumulation_steps = 4", "batch.microbatch"},
                                          {"per_device_train_batch_size = 8", "batch.microbatch"},
                                          {"lr = 0.1", "optimizer.learning_rate"},
                                          {"max_grad_norm = 1.0", "clip.norm"},
                                          {"num_train_epochs = 3", "run.epochs"},
                                          {"save_total_limit = 2", "checkpoint.keep"},
                                          {"precision = \"16-mixed\"", "precision.mode"}}) {
    expect_contains(error_of(key + "\n" + kGood), advice);
  }
  expect_contains(error_of(kGood, {"optimizer.lr=1"}), "optimizer.learning_rate");
}

TEST(ReadConfig, tells_all_problems_at_once) {
  const auto text =
      error_of("[run]\nsteps = 0\n[model]\nkind = \"mpl\"\n[clip]\nnorm = \"x\"\n[x]\ny=1\n");
  expect_contains(text, "run.steps is 0");
  expect_contains(text, "nearest: mlp");
  expect_contains(text, "clip.norm must be a number");
  expect_contains(text, "unknown key x");
  expect_contains(text, "data.train.kind is missing");
}

TEST(ReadConfig, refuses_wrong_types_and_absurd_numbers) {
  for (const auto& [line, part] : std::map<std::string, std::string>{
           {"run.seed=-1", "run.seed is -1"},
           {"run.threads=1000000", "run.threads"},
           {"run.device=tpu", "run.device"},
           {"run.device=cuda:99999999999999999999", "run.device"},
           {"run.epochs=1.5", "a whole number"},
           {"run.deterministic=1", "true or false"},
           {"model.hidden=128", "a list of whole numbers"},
           {"model.hidden=[0]", "model.hidden is 0"},
           {"model.dropout=1", "model.dropout"},
           {"optimizer.learning_rate=0", "must be positive"},
           {"optimizer.learning_rate=nan", "a number"},
           {"optimizer.learning_rate=inf", "a number"},
           {"optimizer.beta1=1", "optimizer.beta1"},
           {"optimizer.momentum=0.9", "no meaning"},
           {"optimizer.nesterov=true", "nesterov needs"},
           {"batch.global_batch=0", "batch.global_batch"},
           {"batch.global_batch=1.5", "batch.global_batch"},
           {"batch.global_batch=many", "batch.global_batch"},
           {"batch.microbatch=64", "larger than batch.global_batch"},
           {"precision.mode=fp8", "one of auto, fp32, bf16, fp16, fp64"},
           {"precision.initial_scale=-1", "initial_scale"},
           {"precision.initial_scale=1e300", "initial_scale"},
           {"precision.backoff_factor=1", "backoff_factor"},
           {"precision.growth_factor=1", "growth_factor"},
           {"precision.min_scale=1e9", "min_scale"},
           {"evaluate.metrics=[\"topx\"]", "top<k>"},
           {"checkpoint.keep=0", "checkpoint.keep"},
           {"data.prefetch=0", "data.prefetch"},
           {"data.last=some", "data.last"},
           {"schedule.final_fraction=2", "final_fraction"},
           {"run", "key=value"},
           {"=3", "key=value"},
           {"run.steps=5", "both set"}}) {
    expect_contains(error_of(kGood, {line}), part);
  }
  expect_contains(error_of(std::string("run = 5\n") + kGood), "run");
  expect_contains(error_of("[run]\nname = 5\nepochs = 1\n"), "run.name must be text");
}

TEST(ReadConfig, types_set_values_by_their_field) {
  const auto config =
      parse(kGood, {"model.hidden=[4, 5]", "data.shuffle=false", "optimizer.kind=sgd",
                    "optimizer.momentum=0.5", "run.name=my run", "batch.global_batch=epoch",
                    "model.options.width=7"});
  EXPECT_EQ(config.model.hidden, (std::vector<int64_t>{4, 5}));
  EXPECT_FALSE(config.data.shuffle);
  EXPECT_EQ(config.optimizer.kind, "sgd");
  EXPECT_EQ(config.run.name, "my run");
  EXPECT_EQ(config.batch.global_batch, "epoch");
  EXPECT_EQ(config.model.options.at("width"), "7");
  EXPECT_EQ(parse(kGood, {"batch.global_batch=64"}).batch.global_batch, "64");
  EXPECT_EQ(config.asked.count("optimizer.momentum"), 1u);
  EXPECT_EQ(config.asked.count("optimizer.beta1"), 0u);
}

TEST(ReadConfig, reads_optimizer_groups_and_refuses_others) {
  const auto config = parse(std::string(kGood) +
                            "[[optimizer.groups]]\nparameters = [\"*.bias\"]\nweight_decay = 0\n");
  ASSERT_EQ(config.optimizer.groups.size(), 1u);
  EXPECT_EQ(*config.optimizer.groups[0].weight_decay, 0.0);
  expect_contains(
      error_of(std::string(kGood) + "[[optimizer.groups]]\nparameters = [\"*\"]\nlr = 1\n"),
      "optimizer.groups");
  expect_contains(error_of(std::string(kGood) + "[optimizer.groups]\nparameters = [\"*\"]\n"),
                  "optimizer.groups");
}

TEST(ReadConfig, makes_data_paths_absolute_from_the_files_folder) {
  EXPECT_EQ(parse(kGood).data.train.path, "/data/train.csv");
}

TEST(ReadConfig, refuses_missing_and_empty_files_and_folders) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("config-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  EXPECT_THROW(read_config(folder / "no.toml", {}, kKinds), InputError);
  EXPECT_THROW(read_config(folder, {}, kKinds), InputError);
  std::ofstream(folder / "empty.toml").close();
  EXPECT_THROW(read_config(folder / "empty.toml", {}, kKinds), ConfigError);
  std::ofstream(folder / "good.toml") << kGood;
  EXPECT_EQ(read_config(folder / "good.toml", {}, kKinds).run.name, "good");
  std::filesystem::remove_all(folder);
}

// A value of each key that differs from its default and is valid on its own.
template <typename T>
void change(const std::string&, T& value);
template <>
void change(const std::string& key, std::string& value) {
  static const std::map<std::string, std::string> others = {{"run.device", "cpu"},
                                                            {"model.norm", "none"},
                                                            {"model.activation", "tanh"},
                                                            {"model.loss", "mse"},
                                                            {"data.last", "drop"},
                                                            {"batch.global_batch", "64"},
                                                            {"precision.mode", "bf16"},
                                                            {"precision.loss_scale", "static"},
                                                            {"precision.initial_scale", "128"},
                                                            {"precision.matmul", "high"},
                                                            {"optimizer.kind", "sgd"},
                                                            {"schedule.kind", "cosine"},
                                                            {"guard.nan_loss", "skip"},
                                                            {"guard.nan_gradient", "skip"},
                                                            {"data.train.label_type", "value"},
                                                            {"data.eval.label_type", "value"},
                                                            {"data.eval.kind", "csv"},
                                                            {"data.train.kind", "tensors"},
                                                            {"model.kind", "convnet"}};
  const auto found = others.find(key);
  value = found != others.end() ? found->second : value + "x";
}
template <>
void change(const std::string&, bool& value) {
  value = !value;
}
template <>
void change(const std::string&, int64_t& value) {
  value += 3;
}
template <>
void change(const std::string&, double& value) {
  value = value * 0.5 + 0.2;
}
template <>
void change(const std::string&, std::optional<int64_t>& value) {
  value = value.value_or(0) + 3;
}
template <>
void change(const std::string&, std::vector<int64_t>& value) {
  value.push_back(3);
}
template <>
void change(const std::string&, std::vector<std::string>& value) {
  value.emplace_back("top5");
}
template <>
void change(const std::string&, std::map<std::string, std::string>& value) {
  value["a"] = "b";
}
template <>
void change(const std::string&, std::vector<GroupOptions>& value) {
  value.push_back({{"*.bias"}, 0.5, 0.0});
}

TEST(Config, each_key_is_written_and_changes_the_runs_identity_unless_it_is_free) {
  RunConfig base = parse(kGood);
  base.data.eval.kind = "tensors";  // so that its section is written
  std::vector<std::string> seen;
  visit_config(base, [&](const std::string& key, auto&, const FieldInfo& info) {
    RunConfig changed = base;
    visit_config(changed, [&](const std::string& name, auto& member, const FieldInfo&) {
      if (name == key) change(name, member);
    });
    EXPECT_NE(to_toml(changed), to_toml(base)) << key;
    const auto differing = differing_keys(base, changed);
    // run.steps from "not set" to a number is a change of kind, not growth.
    const bool free = info.identity == Identity::free || key == "run.epochs";
    EXPECT_EQ(differing.empty(), free) << key;
    if (!free && !differing.empty()) expect_contains(differing[0], key + ": ");
    EXPECT_EQ(changed_keys(changed).count(key), 1u) << key;
    seen.push_back(key);
  });
  EXPECT_EQ(seen, all_keys());
  EXPECT_GT(seen.size(), 70u);
}

TEST(Config, written_toml_reads_back_to_the_same_values_for_every_key) {
  RunConfig config = parse(kGood);
  config.data.eval.kind = "csv";
  visit_config(config, [&](const std::string& key, auto& member, const FieldInfo&) {
    // What would not go together with the rest stays.
    if (key == "run.steps" || key == "optimizer.nesterov" || key.rfind("optimizer.beta", 0) == 0 ||
        key == "optimizer.eps" || key == "model.label_smoothing" || key == "optimizer.dampening") {
      return;
    }
    change(key, member);
  });
  config.data.train.path = "/x \"quoted\" \\ path";
  config.data.eval.path = "/y";
  const std::string text = to_toml(config);
  EXPECT_EQ(to_toml(parse(text)).size() > 500, true);
  RunConfig back = parse(text);
  back.asked = config.asked;
  EXPECT_EQ(to_toml(back), text);
}

TEST(Config, a_longer_run_is_the_same_run_and_a_shorter_one_is_not) {
  const RunConfig base = parse(kGood);
  RunConfig longer = base, shorter = base;
  longer.run.epochs = 3;
  shorter.run.epochs = 1;
  EXPECT_TRUE(differing_keys(base, longer).empty());
  EXPECT_EQ(differing_keys(base, shorter).size(), 1u);
}

}  // namespace
}  // namespace tanren
