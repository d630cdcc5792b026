#include "tanren/interop/pretrained.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/config/read_config.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/bert.h"
#include "tanren/model/gpt2.h"
#include "tanren/model/registry.h"
#include "tanren/run/run.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>

namespace tanren {
namespace {

namespace fs = std::filesystem;

using testing::error_of;
using testing::TemporaryFolder;

const fs::path kHf = TANREN_SOURCE_DIR "/tests/fixtures/hf";
const DataInfo kData{.input_shape = {7}, .outputs = 4, .vocab_size = 23};

double weights_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

struct Loaded {
  Pretrained pretrained;
  Task task;
  InitReport report;
};

Loaded load(const fs::path& folder, ModelOptions options = {}) {
  options.from_hf = folder.string();
  Loaded loaded;
  loaded.pretrained = resolve_model(options);
  loaded.task = ModelRegistry().make(loaded.pretrained.model, kData);
  loaded.task.module->eval();
  loaded.report = init_from_pretrained(*loaded.task.module, loaded.pretrained);
  return loaded;
}

std::string refusal(const std::string& from, const HubCaches& caches = {"/none", "/none"}) {
  ModelOptions options;
  options.from_hf = from;
  auto text = error_of<ConfigError>([&] { resolve_model(options, caches); });
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

std::string refusal_of_config(const std::string& config) {
  const TemporaryFolder folder;
  folder.file("config.json", config);
  folder.file("model.safetensors", "");
  return refusal(folder.path().string());
}

TEST(Pretrained, a_folder_that_is_none_says_what_it_lacks) {
  TANREN_EXPECT_CONTAINS(refusal("/no/such/folder"), "is no folder");
  const TemporaryFolder folder;
  TANREN_EXPECT_CONTAINS(refusal(folder.path().string()), "has no config.json");
  folder.file("config.json", "{}");
  TANREN_EXPECT_CONTAINS(refusal(folder.path().string()), "has no weights; it needs model.saf");
}

TEST(Pretrained, a_name_that_is_not_in_the_cache_gives_the_command_that_downloads_it) {
  TANREN_EXPECT_CONTAINS(
      refusal("bert-large-uncased"),
      "is not in /none; download it: hf download google-bert/bert-large-uncased config.json "
      "model.safetensors");
  TANREN_EXPECT_CONTAINS(refusal("someone/model"), "hf download someone/model config.json");
  TANREN_EXPECT_CONTAINS(refusal("resnet50"),
                         "curl -fL --create-dirs -o '/none/resnet50-11ad3fa6.pth' "
                         "https://download.pytorch.org/models/resnet50-11ad3fa6.pth");
  TANREN_EXPECT_CONTAINS(refusal("bert-large-uncasd"), "(nearest: bert-large-uncased)");
}

TEST(Pretrained, a_config_of_another_model_or_variant_is_refused_by_field) {
  TANREN_EXPECT_CONTAINS(refusal_of_config("[1"), "is no JSON object");
  TANREN_EXPECT_CONTAINS(refusal_of_config(R"({"model_type": "llama"})"),
                         "has model_type \"llama\"; we build bert and gpt2");
  TANREN_EXPECT_CONTAINS(refusal_of_config(R"({"model_type": "bert", "hidden_size": "big"})"),
                         "has hidden_size \"big\"; it must be a size of 1 or more");
  TANREN_EXPECT_CONTAINS(refusal_of_config(R"({"model_type": "bert", "num_hidden_layers": -1})"),
                         "num_hidden_layers -1");
  TANREN_EXPECT_CONTAINS(refusal_of_config(R"({"model_type": "bert", "hidden_act": "selu"})"),
                         "hidden_act \"selu\"");
  TANREN_EXPECT_CONTAINS(
      refusal_of_config(R"({"model_type": "bert", "position_embedding_type": "relative_key"})"),
      "position_embedding_type \"relative_key\"; it must be \"absolute\"");
  TANREN_EXPECT_CONTAINS(
      refusal_of_config(R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})"),
      "scale_attn_by_inverse_layer_idx true");
  TANREN_EXPECT_CONTAINS(
      refusal_of_config(R"({"model_type": "gpt2", "activation_function": "relu"})"),
      "activation_function \"relu\"");
  ModelOptions options;
  options.kind = "gpt2";
  options.from_hf = (kHf / "bert").string();
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { resolve_model(options); }),
                         "is a bert, and model.kind is \"gpt2\"; drop model.kind");
}

TEST(Pretrained, a_key_that_the_found_kind_does_not_read_is_refused) {
  ModelOptions options;
  options.from_hf = (kHf / "gpt2").string();
  options.activation = "relu";
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { resolve_model(options); }),
                         "model.activation has no meaning for model.kind \"gpt2\"");
}

TEST(Pretrained, a_bert_classifier_comes_with_its_config_and_gives_transformers_scores) {
  const auto expected = read_safetensors(kHf / "bert" / "expected.safetensors").tensors;
  const Loaded loaded = load(kHf / "bert");
  const at::NoGradGuard no_grad;
  const auto model = std::dynamic_pointer_cast<Bert>(loaded.task.module);
  EXPECT_LT(
      weights_distance(model->forward({expected.at("inputs"), {}, {}}), expected.at("logits")),
      1e-5);
  EXPECT_EQ(model->shape().activation, "relu");
  EXPECT_EQ(model->shape().residual_dropout, 0.2);
  EXPECT_EQ(model->shape().attention_dropout, 0.3);
  EXPECT_EQ(model->shape().classifier_dropout, 0.2);
  EXPECT_EQ(model->shape().initializer_range, 0.3);
  EXPECT_TRUE(loaded.report.skipped.empty() && loaded.report.ignored.empty());
}

TEST(Pretrained, keys_of_the_config_stand_above_those_of_the_file) {
  ModelOptions asked;
  asked.dropout = 0.0;
  asked.initializer_range = 0.5;
  const auto model = std::dynamic_pointer_cast<Bert>(load(kHf / "bert", asked).task.module);
  EXPECT_EQ(model->shape().residual_dropout, 0.0);
  EXPECT_EQ(model->shape().attention_dropout, 0.0);
  EXPECT_EQ(model->shape().initializer_range, 0.5);
}

TEST(Pretrained, old_names_and_copies_in_a_bin_file_are_seen_to) {
  const auto expected = read_safetensors(kHf / "bert_old" / "expected.safetensors").tensors;
  ModelOptions options;
  options.task = "masked_lm";
  const Loaded loaded = load(kHf / "bert_old", options);
  const at::NoGradGuard no_grad;
  const auto model = std::dynamic_pointer_cast<Bert>(loaded.task.module);
  EXPECT_LT(
      weights_distance(model->forward({expected.at("inputs"), {}, {}}), expected.at("logits")),
      1e-5);
  EXPECT_EQ(loaded.report.ignored, (std::vector<std::string>{"cls.seq_relationship.weight"}));
}

TEST(Pretrained, a_head_for_another_task_is_initialised_anew_and_said) {
  const Loaded loaded = load(kHf / "bert_old");
  const auto source = read_weights(kHf / "bert_old" / "pytorch_model.bin").content.tensors;
  EXPECT_TRUE(
      at::equal(loaded.task.module->named_parameters()["bert.encoder.layer.1.output.dense.weight"],
                source.at("bert.encoder.layer.1.output.dense.weight")));
  EXPECT_EQ(loaded.report.skipped,
            (std::vector<std::string>{"bert.pooler.dense.weight", "bert.pooler.dense.bias",
                                      "classifier.weight", "classifier.bias"}));
  EXPECT_EQ(loaded.report.ignored.size(), 6u);
  TANREN_EXPECT_CONTAINS(loaded.report.text("x"), "newly initialised: bert.pooler.dense.weight");
}

TEST(Pretrained, a_head_of_other_classes_is_an_error_until_it_is_skipped) {
  ModelOptions options;
  options.outputs = 6;
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] { load(kHf / "bert", options); }),
                         "model.init_skip");
  options.init_skip = {"classifier.*"};
  EXPECT_EQ(load(kHf / "bert", options).report.skipped,
            (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
}

TEST(Pretrained, a_body_that_lacks_something_is_an_error) {
  const TemporaryFolder folder;
  folder.file("config.json", read_file(kHf / "bert" / "config.json"));
  TensorMap part;
  for (const auto& [name, tensor] :
       read_weights(kHf / "bert" / "model.safetensors").content.tensors) {
    if (!testing::contains(name, "layer.1.output.dense")) part.set(name, tensor);
  }
  write_safetensors(folder.path() / "model.safetensors", part);
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] { load(folder.path()); }),
                         "bert.encoder.layer.1.output.dense");
}

TEST(Pretrained, a_gpt2_in_several_files_without_its_prefix_gives_transformers_scores) {
  const auto expected = read_safetensors(kHf / "gpt2" / "expected.safetensors").tensors;
  const Loaded loaded = load(kHf / "gpt2");
  const at::NoGradGuard no_grad;
  const auto model = std::dynamic_pointer_cast<Gpt2>(loaded.task.module);
  EXPECT_LT(weights_distance(model->forward(expected.at("inputs")), expected.at("logits")), 1e-5);
  EXPECT_EQ(model->shape().embedding_dropout, 0.2);
  EXPECT_EQ(model->shape().residual_dropout, 0.0);
}

TEST(Pretrained, names_are_found_in_the_caches) {
  const TemporaryFolder folder;
  const fs::path repository = folder.path() / "models--google-bert--bert-base-uncased";
  fs::create_directories(repository / "refs");
  for (const char* commit : {"aaaa", "bbbb"}) {
    fs::create_directories(repository / "snapshots" / commit);
    fs::copy(kHf / "bert", repository / "snapshots" / commit);
  }
  const HubCaches caches{folder.path(), folder.path()};
  EXPECT_EQ(find_hub_model("bert-base-uncased", caches).folder.filename(), "aaaa");
  folder.file("models--google-bert--bert-base-uncased/refs/main", "bbbb\n");
  EXPECT_EQ(find_hub_model("bert-base-uncased", caches).folder.filename(), "bbbb");
  EXPECT_EQ(find_hub_model("google-bert/bert-base-uncased", caches).weights.filename(),
            "model.safetensors");
  folder.file("models--google-bert--bert-base-uncased/refs/main", "../../..");
  EXPECT_EQ(find_hub_model("bert-base-uncased", caches).folder.filename(), "aaaa");

  folder.file("resnet50-0676ba61.pth", "");
  EXPECT_EQ(find_hub_model("resnet50", caches).weights.filename(), "resnet50-0676ba61.pth");
  folder.file("resnet50-11ad3fa6.pth", "");
  const HubModel better = find_hub_model("resnet50", caches);
  EXPECT_EQ(better.weights.filename(), "resnet50-11ad3fa6.pth");
  EXPECT_EQ(better.kind, "resnet");
  folder.file("vgg11_bn-6002323d.pth", "");
  ModelOptions options;
  options.from_hf = "vgg11_bn";
  EXPECT_EQ(resolve_model(options, caches).model.kind, "vgg");
  EXPECT_EQ(resolve_model(options, caches).model.size, "vgg11_bn");
}

TEST(Pretrained, a_run_starts_from_a_folder_beside_its_config_and_goes_on_from_its_checkpoint) {
  const TemporaryFolder folder;
  fs::copy(kHf / "bert", folder.path() / "start");
  const std::string text =
      "[run]\nname = \"tuned\"\nsteps = 2\nthreads = 1\n[model]\nfrom_hf = \"start\"\n"
      "dropout = 0\n[data.train]\nkind = \"synthetic\"\nsamples = 8\nfields = [\"inputs: int[7] in "
      "[0, 22]\", \"labels: int[] in [0, 3]\"]\n[batch]\nglobal_batch = 4\n[precision]\nmode = "
      "\"fp32\"\n[optimizer]\nlearning_rate = 1e-9\nweight_decay = 0\n";
  const ModelRegistry models;
  RunConfig config = parse_config(text, "run.toml", folder.path(), {}, models.kinds());
  std::string lines;
  for (const auto& line : plan_only(config, models).lines) {
    lines += line.key + " " + line.value + " " + line.reason + "\n";
  }
  TANREN_EXPECT_CONTAINS(lines, "model bert ");
  TANREN_EXPECT_CONTAINS(lines, "from_hf  41 tensors from ");
  EXPECT_EQ(run({.config = config, .folder = folder.path() / "run"}, models).summary.steps, 2);
  const auto before = read_weights(kHf / "bert").content.tensors;
  const auto after = read_weights(folder.path() / "run").content.tensors;
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(at::allclose(after.at(name), tensor, 1e-6, 1e-6)) << name;
  }
  config.run.steps = 3;
  EXPECT_EQ(run({.config = config, .folder = folder.path() / "run"}, models).summary.steps, 3);
}

TEST(Pretrained, a_run_goes_on_bitwise_when_the_folder_it_began_with_is_gone) {
  const TemporaryFolder folder;
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", rows = "text,label\n";
  for (char c = 'a'; c < 'a' + 18; ++c) words += std::string(1, c) + "\n";
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 3; ++j)
      rows += std::string(1, static_cast<char>('a' + (i * 5 + j) % 18)) + " ";
    rows += "," + std::to_string(i % 4) + "\n";
  }
  folder.file("rows.csv", rows);
  const auto begin = [&] {
    fs::copy(kHf / "bert", folder.path() / "start");
    folder.file("start/vocab.txt", words);
  };
  begin();
  const std::string data =
      "kind = \"text_table\"\npath = \"rows.csv\"\ntokenizer = \"start\"\ncontext = 8\n";
  const std::string text =
      "[run]\nname = \"tuned\"\nsteps = 6\nthreads = 1\n[model]\nfrom_hf = \"./start\"\n"
      "[data.train]\n" +
      data + "[data.eval]\n" + data + "[batch]\nglobal_batch = 4\n";
  const ModelRegistry models;
  RunConfig config = parse_config(text, "run.toml", folder.path(), {}, models.kinds());
  run({.config = config, .folder = folder.path() / "whole"}, models);
  config.run.stop_after = 3;
  const fs::path split = folder.path() / "split";
  run({.config = config, .folder = split}, models);
  fs::remove_all(folder.path() / "start");
  EXPECT_THROW(plan_only(config, models), ConfigError);
  EXPECT_EQ(plan_only(config, models, split).model.kind, "bert");
  config.run.stop_after.reset();
  EXPECT_EQ(run({.config = config, .folder = split}, models).summary.steps, 6);
  EXPECT_EQ(read_file(split / "model.safetensors"),
            read_file(folder.path() / "whole" / "model.safetensors"));
  const Evaluated evaluated =
      evaluate_checkpoint(config, chosen_checkpoint(config, split), models, nullptr);
  EXPECT_EQ(evaluated.report.samples, 12);
  // Another config is still refused.
  config.run.steps = 7;
  config.model.num_layers = 1;
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { run({.config = config, .folder = split}, models); }),
      "model.num_layers");
}

TEST(Pretrained, the_caches_are_where_the_python_packages_have_them) {
  const std::vector<const char*> names = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                          "TORCH_HOME",   "XDG_CACHE_HOME",        "HOME"};
  std::vector<std::optional<std::string>> before;
  for (const char* name : names) {
    const char* value = std::getenv(name);
    before.push_back(value != nullptr ? std::optional<std::string>(value) : std::nullopt);
    ::unsetenv(name);
  }
  const auto set = [](const char* name, const char* value) { ::setenv(name, value, 1); };
  set("HOME", "/h");
  EXPECT_EQ(hub_caches().hugging_face, "/h/.cache/huggingface/hub");
  EXPECT_EQ(hub_caches().torch, "/h/.cache/torch/hub/checkpoints");
  set("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(hub_caches().hugging_face, "/x/huggingface/hub");
  EXPECT_EQ(hub_caches().torch, "/x/torch/hub/checkpoints");
  set("HF_HOME", "/f");
  set("TORCH_HOME", "/t");
  EXPECT_EQ(hub_caches().hugging_face, "/f/hub");
  EXPECT_EQ(hub_caches().torch, "/t/hub/checkpoints");
  set("HF_HUB_CACHE", "/c");
  EXPECT_EQ(hub_caches().hugging_face, "/c");
  for (size_t i = 0; i < names.size(); ++i) {
    if (before[i]) {
      set(names[i], before[i]->c_str());
    } else {
      ::unsetenv(names[i]);
    }
  }
}

}  // namespace
}  // namespace tanren
