#include "tanren/interop/python_folder.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/config/read_config.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/hf_config.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <ATen/ATen.h>

#include <cmath>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class PythonFolders : public ::testing::Test {
 protected:
  // Trains a model with these config sections on synthetic data; returns its whole-model file.
  fs::path train(const std::string& model, const std::string& fields) const {
    const auto config = parse_config(
        "[model]\n" + model + "\n[data.train]\nkind = \"synthetic\"\nfields = " + fields +
            "\nsamples = 8\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n[run]\nname "
            "= \"p\"\nsteps = 1\nthreads = 1\n",
        "p.toml", folder_.path(), {}, ModelRegistry().kinds());
    run({.config = config, .folder = folder_.path() / "run"}, {});
    return whole_file_of(folder_.path() / "run");
  }
  PythonFolder write(const fs::path& file) const {
    return write_python_folder(file, out(), std::nullopt, {});
  }
  fs::path out() const { return folder_.path() / "out"; }
  // Trains an mlp on table.csv into the folder `name`, with these keys of data.train.
  fs::path train_on_table(const std::string& name, const std::string& keys) const {
    const auto config = parse_config(
        "[model]\nkind = \"mlp\"\nhidden = [4]\n[data.train]\nkind = \"csv\"\npath = "
        "\"table.csv\"\nmissing = \"mean\"\ncategories = [\"colour\"]\n" +
            keys +
            "\n[batch]\nglobal_batch = 2\n[precision]\nmode = \"fp32\"\n[run]\nname = \"t\"\n"
            "steps = 1\nthreads = 1\n",
        "t.toml", folder_.path(), {}, ModelRegistry().kinds());
    run({.config = config, .folder = folder_.path() / name}, {});
    return whole_file_of(folder_.path() / name);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(PythonFolders, refuse_unfinished_runs_plain_weights_and_folders_that_hold_something) {
  fs::create_directories(folder_.path() / "empty");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { whole_file_of(folder_.path() / "empty"); }),
                         "has no model.tanren.safetensors; a run writes it when it finishes");
  const auto plain = folder_.path() / "plain.safetensors";
  TensorMap tensors;
  tensors.set("a", at::ones({1}));
  write_safetensors(plain, tensors);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { write(plain); }), "no description of a model");
  EXPECT_FALSE(fs::exists(out()));
  const auto file = train("kind = \"mlp\"\nhidden = [4]",
                          R"(["inputs: float[3] in [0, 1]", "labels: int[] in [0, 2]"])");
  fs::create_directories(out());
  folder_.file("out/mine", "");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { write(file); }), "holds something");
}

TEST_F(PythonFolders, of_bert_reads_back_as_the_same_model) {
  const auto file = train(
      "kind = \"bert\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\nintermediate_size = 12\n"
      "context_length = 9\nresidual_dropout = 0.2\nactivation = \"gelu_tanh\"",
      R"(["inputs: int[7] in [0, 9]", "labels: int[] in [0, 2]"])");
  const auto written = write(file);
  TANREN_EXPECT_CONTAINS(written.opened_by, "BertForSequenceClassification.from_pretrained");
  ASSERT_EQ(written.remarks.size(), 1u);
  TANREN_EXPECT_CONTAINS(written.remarks[0], "embedding_dropout differs");
  const auto options = options_of_hf_config(out() / "config.json", {});
  EXPECT_EQ(options.kind, "bert");
  EXPECT_EQ(options.intermediate_size, 12);
  EXPECT_EQ(options.context_length, 9);
  EXPECT_EQ(options.vocab_size, 10);
  EXPECT_EQ(options.activation, "gelu_tanh");
  EXPECT_EQ(options.residual_dropout, 0.2);
  EXPECT_EQ(options.attention_dropout, 0.1);
  const auto json = nlohmann::json::parse(read_file(out() / "config.json"));
  EXPECT_EQ(json["id2label"].size(), 3u);
  const auto before = read_safetensors(file).tensors;
  const auto after = read_safetensors(out() / "model.safetensors");
  EXPECT_EQ(after.metadata, (Metadata{{"format", "pt"}}));
  ASSERT_EQ(after.tensors.size(), before.size());
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(after.tensors.at(name), tensor));
}

TEST_F(PythonFolders, of_gpt2_reads_back_as_the_same_model_in_the_dtype_asked_for) {
  const auto file =
      train("kind = \"gpt2\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\ncontext_length = 9",
            R"(["inputs: int[7] in [0, 9]", "labels: int[7] in [0, 9]"])");
  write_python_folder(file, out(), at::kBFloat16, {});
  const auto options = options_of_hf_config(out() / "config.json", {});
  EXPECT_EQ(options.kind, "gpt2");
  EXPECT_EQ(options.intermediate_size, 32);
  EXPECT_EQ(options.context_length, 9);
  const auto json = nlohmann::json::parse(read_file(out() / "config.json"));
  EXPECT_EQ(json["dtype"], "bfloat16");
  EXPECT_EQ(json["eos_token_id"], nullptr);
  for (const auto& [name, tensor] : read_safetensors(out() / "model.safetensors").tensors) {
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << name;
  }
}

// Issue 21: export and init_from of a resumed run took the weights of its first end.
TEST_F(PythonFolders, of_a_run_that_went_on_after_its_end_have_the_newest_weights) {
  train("kind = \"mlp\"\nhidden = [4]",
        R"(["inputs: float[3] in [0, 1]", "labels: int[] in [0, 2]"])");
  const auto run_folder = folder_.path() / "run";
  auto config = parse_config(read_file(run_folder / "config.toml"), "c", folder_.path(),
                             {"run.steps=5", "run.stop_after=2"}, ModelRegistry().kinds());
  run({.config = config, .folder = run_folder}, {});
  const auto newest = read_safetensors(run_folder / "checkpoints/step-3/model.safetensors").tensors;
  const auto written = write_python_folder(run_folder, out(), std::nullopt, {});
  const auto after = read_weights(out() / "model.pth").content.tensors;
  for (const auto& [name, tensor] : newest) EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
  ASSERT_FALSE(written.remarks.empty());
  TANREN_EXPECT_CONTAINS(written.remarks[0], "took step-3");
  // Another run starts from the same weights, and its plan names them.
  config.model.init_from = run_folder.string();
  std::string told;
  for (const auto& line : plan_only(config, ModelRegistry()).lines) {
    if (line.key == "init_from") told = line.reason;
  }
  TANREN_EXPECT_CONTAINS(told, "took step-3");
}

// Issue 21: the single logit of bce belongs to class 1, but was exported with the name of class 0.
TEST(HfConfig, of_bce_names_the_class_that_the_logit_is_of_and_says_sigmoid) {
  DataInfo info;
  info.input_shape = {7};
  info.vocab_size = 10;
  info.outputs = 2;
  info.class_labels = true;
  info.class_names = {"ham", "spam"};
  ModelOptions model;
  model.num_layers = 1;
  model.num_heads = 2;
  model.hidden_size = 8;
  model.task = "classify";
  for (const char* kind : {"bert", "gpt2"}) {
    SCOPED_TRACE(kind);
    model.kind = kind;
    model.loss = "bce";
    info.class_labels = true;
    auto json = nlohmann::json::parse(hf_config_of(model, info, "float32"));
    EXPECT_EQ(json["id2label"], (nlohmann::json{{"0", "spam"}}));
    EXPECT_EQ(json["label2id"], (nlohmann::json{{"spam", 0}}));
    EXPECT_EQ(json["problem_type"], "multi_label_classification");
    auto unnamed = info;
    unnamed.class_names.clear();
    json = nlohmann::json::parse(hf_config_of(model, unnamed, "float32"));
    EXPECT_EQ(json["id2label"], (nlohmann::json{{"0", "LABEL_1"}}));
    // With values as targets, each output is its own label.
    unnamed.class_labels = false;
    json = nlohmann::json::parse(hf_config_of(model, unnamed, "float32"));
    EXPECT_EQ(json["id2label"], (nlohmann::json{{"0", "LABEL_0"}, {"1", "LABEL_1"}}));
    EXPECT_EQ(json["problem_type"], "multi_label_classification");
    model.loss = "mse";
    json = nlohmann::json::parse(hf_config_of(model, unnamed, "float32"));
    EXPECT_EQ(json["problem_type"], "regression");
    model.loss = "cross_entropy";
    json = nlohmann::json::parse(hf_config_of(model, info, "float32"));
    EXPECT_EQ(json["id2label"], (nlohmann::json{{"0", "ham"}, {"1", "spam"}}));
    EXPECT_FALSE(json.contains("problem_type"));
  }
}

// Issue 26: 50256 is a word of another vocabulary.
TEST(HfConfig, of_a_gpt2_classifier_fills_up_with_a_token_of_its_tokenizer_or_none) {
  DataInfo info;
  info.input_shape = {7};
  info.vocab_size = 50300;
  info.outputs = 2;
  info.class_labels = true;
  ModelOptions model;
  model.kind = "gpt2";
  model.num_layers = 1;
  model.num_heads = 2;
  model.hidden_size = 8;
  model.task = "classify";
  const auto pad = [&] {
    return nlohmann::json::parse(hf_config_of(model, info, "float32"))["pad_token_id"];
  };
  EXPECT_EQ(pad(), 50256);
  const std::string fixture = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json";
  TokenizerFiles files{{"tokenizer.json", read_file(fixture)}};
  info.tokenizer = std::make_shared<const TokenizerFiles>(files);
  EXPECT_TRUE(pad().is_null());
  const auto id = load_tokenizer(files, "tokenizer")->id_of("<|endoftext|>");
  ASSERT_TRUE(id);
  files["tokenizer_config.json"] = R"({"pad_token": "<|endoftext|>"})";
  info.tokenizer = std::make_shared<const TokenizerFiles>(files);
  EXPECT_EQ(pad(), *id);
}

TEST_F(PythonFolders, of_a_resnet_is_a_state_dict_of_torchvision_with_whole_counters) {
  const auto file = train("kind = \"resnet\"",
                          R"(["inputs: float[3,8,8] in [0, 1]", "labels: int[] in [0, 2]"])");
  const auto written = write(file);
  TANREN_EXPECT_CONTAINS(written.opened_by, "torchvision.models.resnet18(num_classes=3)");
  const auto after = read_weights(out() / "model.pth").content.tensors;
  EXPECT_EQ(after.at("bn1.num_batches_tracked").scalar_type(), at::kLong);
  EXPECT_EQ(after.at("bn1.num_batches_tracked").item<int64_t>(), 1);
  EXPECT_EQ(after.at("fc.weight").sizes(), (std::vector<int64_t>{3, 512}));
}

TEST_F(PythonFolders, of_an_lstm_holds_a_state_dict_and_says_what_it_is_of) {
  const auto file = train("kind = \"lstm\"\nhidden_size = 6\nbidirectional = true",
                          R"(["inputs: int[7] in [0, 9]", "labels: int[] in [0, 2]"])");
  const auto written = write(file);
  EXPECT_EQ(written.files, (std::vector<std::string>{"model.pth", "architecture.json"}));
  const auto json = nlohmann::json::parse(read_file(out() / "architecture.json"));
  EXPECT_EQ(json["torch.nn"]["lstm"]["LSTM"], nlohmann::json({6, 6}));
  EXPECT_EQ(json["torch.nn"]["head"]["Linear"], nlohmann::json({12, 3}));
  EXPECT_EQ(json["outputs"], 3);
  const auto before = read_safetensors(file).tensors;
  const auto after = read_weights(out() / "model.pth").content.tensors;
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
}

// Issue 26: Python could not know what raw rows had to become.
TEST_F(PythonFolders, of_a_table_say_how_each_column_becomes_inputs) {
  folder_.file("table.csv", "colour,size,label\nred,1,0\nblue,3,1\nred,5,0\nblue,,1\n");
  write(train_on_table("plain", "scale = 0.5"));
  auto json = nlohmann::json::parse(read_file(out() / "architecture.json"));
  EXPECT_EQ(json["preprocessing"]["scale"], 0.5);
  ASSERT_EQ(json["columns"].size(), 2u);
  EXPECT_EQ(json["columns"][1].dump(), R"({"fill":3.0,"name":"size"})");
  EXPECT_EQ(json["decimal"], ".");
  fs::remove_all(out());
  write(train_on_table("standard", "standardize = true"));
  json = nlohmann::json::parse(read_file(out() / "architecture.json"));
  EXPECT_FALSE(json.contains("preprocessing")) << "scale and offset are not applied";
  ASSERT_EQ(json["columns"].size(), 2u);
  EXPECT_EQ(json["columns"][0].dump(), R"({"name":"colour","values":["blue","red"]})");
  const auto& size = json["columns"][1];
  EXPECT_EQ(size["name"], "size");
  EXPECT_EQ(size["fill"], 3.0);
  EXPECT_NEAR(size["mean"].get<double>(), 3.0, 1e-12);
  EXPECT_NEAR(size["std"].get<double>(), std::sqrt(8.0 / 3), 1e-12);
}

TEST_F(PythonFolders, of_a_table_say_its_decimal_sign) {
  folder_.file("table.csv", "colour;size;label\nred;1,5;0\nblue;3,5;1\n");
  write(train_on_table("comma", "decimal = \",\"\ndelimiter = \";\""));
  const auto json = nlohmann::json::parse(read_file(out() / "architecture.json"));
  EXPECT_EQ(json["decimal"], ",");
  EXPECT_EQ(json["columns"][1]["fill"], 2.5);
}

// Issue 26: a folder of which a part was written looked like a model, and was in the way.
TEST_F(PythonFolders, that_cannot_be_written_leave_nothing_behind) {
  std::string rows = "colour,size,label\n";
  for (const char c : {'a', 'b', 'c', 'd'}) rows += std::string(3000, c) + ",1,0\n";
  folder_.file("table.csv", rows + "a,1,1\n");
  const auto file = train_on_table("run", "");
  write_python_folder(file, folder_.path() / "whole", std::nullopt, {});
  const auto weights = fs::file_size(folder_.path() / "whole" / "model.pth");
  ASSERT_LT(weights, fs::file_size(folder_.path() / "whole" / "architecture.json"));
  fs::create_directories(out());
  {
    const testing::FullDiskScope full(weights);  // room for the weights alone
    EXPECT_THROW(write(file), DiskError);
    EXPECT_THROW(write_python_folder(file, folder_.path() / "above" / "below", std::nullopt, {}),
                 DiskError);
  }
  EXPECT_FALSE(fs::exists(folder_.path() / "above"));
  ASSERT_TRUE(fs::exists(out())) << "it was there before";
  EXPECT_TRUE(fs::is_empty(out()));
  EXPECT_EQ(write(file).files.size(), 2u);
}

}  // namespace
}  // namespace tanren
