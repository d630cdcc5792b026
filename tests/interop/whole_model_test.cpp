#include "tanren/interop/whole_model.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/read_config.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/interop/python_folder.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <filesystem>
#include <utility>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

const std::string kVocabulary = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt";

class WholeModels : public ::testing::Test {
 protected:
  RunConfig config_of(const std::string& text, const std::vector<std::string>& sets = {}) const {
    const std::string rest =
        "\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n[run]\nname = \"whole\"\n"
        "steps = 3\nthreads = 1\nseed = 3\n";
    return parse_config(text + rest, "whole.toml", folder_.path(), sets, ModelRegistry().kinds());
  }
  RunConfig text_config(const std::vector<std::string>& sets = {}) const {
    std::string rows = "text,label\n";
    for (int i = 0; i < 12; ++i) {
      rows += std::string(i % 3 ? "the a b" : "c d") + " " + std::to_string(i) +
              (i % 3 ? ",word\n" : ",letter\n");
    }
    folder_.file("rows.csv", rows);
    return config_of(
        "[model]\nkind = \"bert\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\n"
        "context_length = 16\n[data.train]\nkind = \"text_table\"\npath = \"rows.csv\"\n"
        "context = 16\ntokenizer = \"" +
            kVocabulary +
            "\"\n[data.eval]\nkind = \"text_table\"\npath = \"rows.csv\"\ncontext = 16\n",
        sets);
  }
  RunConfig image_config() const {
    for (const std::string name : {"pictures/cat", "pictures/dog"}) {
      fs::create_directories(folder_.path() / name);
      for (int i = 0; i < 3; ++i) {
        folder_.file(name + "/" + std::to_string(i) + ".jpg",
                     testing::make_jpeg(17 + i, 12 + 3 * i));
      }
    }
    return config_of(
        "[model]\nkind = \"convnet\"\nchannels = [4]\n[data.train]\nkind = \"images\"\n"
        "path = \"pictures\"\nsize = [8]\ncrop = \"random\"\nflip = 0.5\nmean = [0.4, 0.4, 0.4]\n"
        "[data.eval]\nkind = \"images\"\npath = \"pictures\"\nsize = [8]\nmean = [0.4, 0.4, "
        "0.4]\n");
  }
  fs::path train(const RunConfig& config) const {
    run({.config = config, .folder = place()}, {});
    return place() / "model.tanren.safetensors";
  }
  // Writes a copy of the model's file with one metadata text changed, or removed if `text` is
  // empty.
  fs::path changed(const fs::path& file, const std::string& key, const std::string& text) const {
    SafetensorsFile read = read_safetensors(file);
    if (text.empty()) {
      read.metadata.erase(key);
    } else {
      read.metadata[key] = text;
    }
    fs::path other = folder_.path() / "changed.safetensors";
    write_safetensors(other, read.tensors, read.metadata);
    return other;
  }
  fs::path place() const { return folder_.path() / "run"; }

  testing::TemporaryFolder folder_;
};

TEST_F(WholeModels, a_file_without_a_description_or_with_a_foreign_one_is_refused_by_name) {
  const auto file = train(text_config());
  const auto error = [&](const std::string& key, const std::string& text) {
    auto said = error_of<InputError>([&] { load_model(changed(file, key, text)); });
    TANREN_EXPECT_CONTAINS(said, "changed.safetensors");
    return said;
  };
  TANREN_EXPECT_CONTAINS(error("tanren.version", ""), "no description of a model");
  TANREN_EXPECT_CONTAINS(error("tanren.version", "9"), "has version 9 of the description");
  TANREN_EXPECT_CONTAINS(error("tanren.config", ""), "lacks tanren.config");
  TANREN_EXPECT_CONTAINS(error("tanren.config", "]["), "fix the TOML");
  TANREN_EXPECT_CONTAINS(error("tanren.config", "sept = 3"), "sept");
  TANREN_EXPECT_CONTAINS(error("tanren.data", "[]"), "no JSON object");
  TANREN_EXPECT_CONTAINS(error("tanren.data", "{}"), "input_shape");
  TANREN_EXPECT_CONTAINS(error("tanren.tokenizer", R"({"../../x": "y"})"),
                         "\"../../x\" among the tokenizer's files");
  const std::string data = read_safetensors(file).metadata.at("tanren.data");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = data;
    const auto at = other.find(from);
    EXPECT_NE(at, std::string::npos) << data;
    return other.replace(at, from.size(), to);
  };
  TANREN_EXPECT_CONTAINS(error("tanren.data", with("\"outputs\":2", "\"outputs\":-2")), "outputs");
  TANREN_EXPECT_CONTAINS(error("tanren.data", with("\"outputs\":2", "\"outputs\":3")),
                         "names 2 classes of 3");
  TANREN_EXPECT_CONTAINS(error("tanren.data", with("[16]", "[16,\"x\"]")), "input_shape");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  TANREN_EXPECT_CONTAINS(error("tanren.data", with("[16]", deep)), "input_shape");
  TANREN_EXPECT_CONTAINS(
      error("tanren.data", with("\"class_labels\":true", "\"class_labels\":" + deep)),
      "class_labels");
  TANREN_EXPECT_CONTAINS(error("tanren.tokenizer", "{\"vocab.txt\": " + deep + "}"), "vocab.txt");
}

TEST_F(WholeModels, a_description_larger_than_its_weights_takes_no_memory) {
  const auto file = train(text_config());
  const std::string config = read_safetensors(file).metadata.at("tanren.config");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string other = config;
    other.replace(other.find(from), from.size(), to);
    return error_of<InputError>([&] { load_model(changed(file, "tanren.config", other)); });
  };
  TANREN_EXPECT_CONTAINS(error("hidden_size = 8", "hidden_size = 8000000"), "8000000");
  TANREN_EXPECT_CONTAINS(error("num_layers = 1", "num_layers = 4000"), "4000 layers");
}

TEST_F(WholeModels, evaluates_bitwise_as_its_run_folder) {
  for (const char* average : {"none", "ema"}) {
    const auto config = text_config({std::string("average.kind=") + average});
    fs::remove_all(place());
    const auto file = train(config);
    EXPECT_EQ(read_file(file), read_file(place() / "model.safetensors"));
    const auto before =
        evaluate_checkpoint(config, *latest_checkpoint(place() / "checkpoints"), {}, nullptr);
    const auto after =
        evaluate_whole_model(file, folder_.path() / "rows.csv", {}, Registry(), nullptr);
    EXPECT_EQ(after.report.values, before.report.values);
    EXPECT_EQ(after.report.step, before.report.step);
    EXPECT_EQ(after.report.averaged, std::string(average) == "ema");
    EXPECT_EQ(after.report.averaged, before.report.averaged);
  }
}

// The training data, which normally limit the number of threads, are missing.
TEST_F(WholeModels, evaluate_with_no_more_threads_than_their_operators_can_use) {
  const auto file = train(text_config());
  evaluate_whole_model(file, folder_.path() / "rows.csv", {"run.threads=0"}, Registry(), nullptr);
  EXPECT_EQ(at::get_num_threads(), 1);
}

TEST_F(WholeModels, of_a_run_in_fp64_evaluates_and_converts_as_any_other) {
  const auto config = text_config({"precision.mode=fp64"});
  const auto file = train(config);
  const auto expected =
      evaluate_checkpoint(config, place() / "model.safetensors", Registry(), nullptr);
  const auto got = evaluate_whole_model(file, folder_.path() / "rows.csv", {}, Registry(), nullptr);
  EXPECT_EQ(got.report.values, expected.report.values);
  const auto parameters = load_model(file).task.module->parameters();
  ASSERT_FALSE(parameters.empty());
  for (const auto& parameter : parameters) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
  write_python_folder(file, folder_.path() / "python", {}, {});
  EXPECT_TRUE(fs::exists(folder_.path() / "python" / "config.json"));
}

TEST_F(WholeModels, evaluates_in_another_precision_than_it_was_trained_in) {
  for (const auto& [trained, asked] : {std::pair{"fp64", "fp32"}, std::pair{"fp32", "fp64"}}) {
    fs::remove_all(place());
    const auto file = train(text_config({std::string("precision.mode=") + trained}));
    const auto loss_in = [&](const std::string& mode) {
      return evaluate_whole_model(file, folder_.path() / "rows.csv", {"precision.mode=" + mode},
                                  Registry(), nullptr)
          .report.values.front()
          .second;
    };
    const double own = loss_in(trained), other = loss_in(asked);
    EXPECT_NE(other, own) << "computed in " << asked;
    EXPECT_NEAR(other, own, 1e-5);
  }
}

TEST_F(WholeModels, keeps_no_path_of_the_machine_that_trained_it) {
  const auto file = train(text_config());
  for (const auto& [key, text] : read_safetensors(file).metadata) {
    EXPECT_EQ(text.find(folder_.path().string()), std::string::npos) << key;
    EXPECT_EQ(text.find(TANREN_SOURCE_DIR), std::string::npos) << key;
  }
}

TEST_F(WholeModels, gives_the_module_with_its_tokenizer_and_names) {
  const auto file = train(text_config());
  fs::remove(folder_.path() / "rows.csv");
  const WholeModel model = load_model(file);
  EXPECT_EQ(model.info.class_names, (std::vector<std::string>{"letter", "word"}));
  EXPECT_EQ(model.step, 3);
  EXPECT_FALSE(model.task.module->is_training());
  const auto labelled = model.open(folder_.file("new.csv", "text,label\nthe a b,word\nc,letter\n"));
  Batch batch = model.texts({"the a b", "c"});
  const Batch expected = labelled->collate({0, 1}).batch;
  EXPECT_TRUE(at::equal(batch["inputs"], expected["inputs"]));
  EXPECT_TRUE(at::equal(batch["attention_mask"], expected["attention_mask"]));
  EXPECT_THROW(model.texts({"a"}, {"b"}), ConfigError);
  EXPECT_THROW(model.images({"a.jpg"}), ConfigError);
  EXPECT_EQ(model.task.predict(expected).outputs.sizes(), (std::vector<int64_t>{2, 2}));
}

TEST_F(WholeModels, of_a_language_model_says_perplexity_and_a_sample_as_its_run_folder) {
  folder_.file("book.txt", "the quick brown fox jumps over the lazy dog, and then it sleeps");
  const auto config = config_of(
      "[model]\nkind = \"gpt2\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\n"
      "context_length = 8\n[data.train]\nkind = \"text\"\npath = \"book.txt\"\ncontext = 8\n"
      "[data.eval]\nkind = \"text\"\npath = \"book.txt\"\ncontext = 8\npart = [0.5, 1.0]\n"
      "[evaluate]\nmetrics = [\"perplexity\"]\n[generate]\nprompt = \"the\"\ntokens = 9\n");
  const auto file = train(config);
  const auto before =
      evaluate_checkpoint(config, *latest_checkpoint(place() / "checkpoints"), {}, nullptr);
  const auto after = evaluate_whole_model(file, folder_.path() / "book.txt",
                                          {"data.eval.part=[0.5, 1.0]"}, Registry(), nullptr);
  EXPECT_EQ(after.report.values, before.report.values);
  EXPECT_EQ(after.report.samples, before.report.samples);
  ASSERT_TRUE(after.sample);
  EXPECT_EQ(after.sample, before.sample);
  EXPECT_GT(evaluate_whole_model(file, folder_.path() / "book.txt", {}, Registry(), nullptr)
                .report.tokens,
            after.report.tokens)
      << "what picks files is not kept";
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { evaluate_whole_model(file, "", {}, Registry(), nullptr); }),
      "the data are missing; name a file or folder of kind text");
}

TEST_F(WholeModels, of_images_reads_files_as_evaluation_does) {
  const auto config = image_config();
  const auto file = train(config);
  const auto before =
      evaluate_checkpoint(config, *latest_checkpoint(place() / "checkpoints"), {}, nullptr);
  const auto after =
      evaluate_whole_model(file, folder_.path() / "pictures", {}, Registry(), nullptr);
  EXPECT_EQ(after.report.values, before.report.values);
  const WholeModel model = load_model(file);
  EXPECT_EQ(model.info.class_names, (std::vector<std::string>{"cat", "dog"}));
  const auto data = model.open(folder_.path() / "pictures");
  const auto path = folder_.path() / "pictures/dog/0.jpg";
  EXPECT_TRUE(at::equal(model.images({path})["inputs"], data->collate({3}).batch["inputs"]));
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { model.images({"absent.jpg"}); }), "absent.jpg");
}

}  // namespace
}  // namespace tanren
