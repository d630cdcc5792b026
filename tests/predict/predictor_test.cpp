// Predictor: a trained model as a function, and predict_file on tokens and converted folders.
#include "tanren/predict/predictor.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/testing.h"
#include "tanren/config/read_config.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/python_folder.h"
#include "tanren/predict/described_model.h"
#include "tanren/predict/predict_file.h"
#include "tanren/run/run.h"
#include "tests/support/rank_run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <thread>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

const std::string kWordPieces = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt";

class Predictors : public ::testing::Test {
 protected:
  RunConfig config_of(const std::string& text) const {
    const std::string rest =
        "\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n[run]\nname = \"p\"\n"
        "steps = 6\nthreads = 1\nseed = 3\n";
    return parse_config(text + rest, "p.toml", folder_.path(), {}, ModelRegistry().kinds());
  }
  static std::string text_of(int i) {
    return std::string(i % 3 ? "the a b" : "c d") + (i % 5 == 0 ? " the the the a" : "");
  }
  RunConfig text_config(const std::string& label_type = "class") const {
    std::string rows = "text,label\n";
    for (int i = 0; i < 12; ++i) {
      rows += text_of(i) + "," +
              (label_type == "class" ? (i % 3 ? "word" : "letter") : std::to_string(i)) + "\n";
    }
    folder_.file("rows.csv", rows);
    const std::string data =
        "kind = \"text_table\"\npath = \"rows.csv\"\ncontext = 16\n"
        "label_type = \"" +
        label_type + "\"\n";
    return config_of(
        "[model]\nkind = \"bert\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\n"
        "context_length = 16\n" +
        std::string(label_type == "class" ? "" : "loss = \"mse\"\n") + "[data.train]\n" + data +
        "tokenizer = \"" + kWordPieces +
        "\"\n"
        "[data.eval]\n" +
        data + (label_type == "class" ? "" : "[evaluate]\nmetrics = [\"mse\"]\n"));
  }
  fs::path train(const RunConfig& config) const {
    run({.config = config, .folder = folder_.path() / "run"}, {});
    return folder_.path() / "run" / "model.tanren.safetensors";
  }
  // The rows of predict_file as JSON.
  std::vector<nlohmann::json> rows_of(PredictInput input) const {
    input.out = folder_.path() / "rows.jsonl";
    input.replaces = true;
    predict_file(input, {});
    std::vector<nlohmann::json> rows;
    std::istringstream lines(read_file(input.out));
    for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line));
    return rows;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Predictors, refuse_what_they_cannot_read_by_its_place) {
  const Predictor predictor(load_model(train(text_config())));
  const auto error = [&](const Sample& sample) {
    return error_of<DataError>([&] { predictor.predict({Sample::of_text("a"), sample}); });
  };
  TANREN_EXPECT_CONTAINS(error(Sample::of_text("")), "sample 1: the text is empty");
  TANREN_EXPECT_CONTAINS(error(Sample::of_numbers({1})), "sample 1: the text is empty");
  TANREN_EXPECT_CONTAINS(error(Sample::of_text("a", "b")), "reads one text, and there are two");
  TANREN_EXPECT_CONTAINS(error(Sample::of_text("caf\xc3 the")),
                         "sample 1: byte 4 (0xC3) of the text is no UTF-8; convert it");
  EXPECT_EQ(predictor.predict({Sample::of_text("caf\xc3\xa9 the")}).size(), 1u);
  EXPECT_TRUE(predictor.predict({}).empty());
}

// A run that is still training may save a checkpoint between the reads of two ranks.
TEST_F(Predictors, of_several_ranks_take_the_checkpoint_that_rank_0_has_read) {
  auto config = text_config();
  config.run.stop_after = 4;
  config.checkpoint.every = 2;
  train(config);
  const fs::path folder = folder_.path() / "run";
  testing::on_engine("threads", 2, [&](Communicator& ranks) {
    const std::string own = ranks.rank() == 0 ? "step-2" : "step-4";
    DescribedModel mine = described_model(folder, {"evaluate.checkpoint=" + own}, {}, "generate");
    EXPECT_EQ(mine.step, own);
    EXPECT_EQ(agreed_model(std::move(mine), folder, {}, {}, ranks, "generate").step, "step-2");
  });
}

TEST_F(Predictors, say_what_an_evaluation_says_in_the_order_of_the_samples) {
  const auto config = text_config();
  const auto file = train(config);
  const Predictor predictor(load_model(file), /*batch=*/5);
  std::vector<Sample> samples;
  for (int i = 0; i < 12; ++i) samples.push_back(Sample::of_text(text_of(i)));
  const auto answers = predictor.predict(samples);
  const auto report = evaluate_checkpoint(config, folder_.path() / "run/model.safetensors", {},
                                          nullptr, {}, {folder_.path() / "eval.jsonl"})
                          .report;
  double right = 0, loss = 0;
  for (int i = 0; i < 12; ++i) {
    const Answer& answer = answers[static_cast<size_t>(i)];
    const int64_t target = i % 3 ? 1 : 0;  // letter, word
    right += answer.label == target ? 1 : 0;
    loss -= std::log(answer.scores[static_cast<size_t>(target)]);
    EXPECT_EQ(predictor.label_of(answer), answer.label == 1 ? "word" : "letter");
  }
  for (const auto& [name, value] : report.values) {
    if (name == "accuracy") {
      EXPECT_DOUBLE_EQ(value, right / 12);
    }
    if (name == "loss") {
      EXPECT_NEAR(value, loss / 12, 1e-6);
    }
  }
  // The evaluation's file and predict_file hold the same answers.
  std::istringstream lines(read_file(folder_.path() / "eval.jsonl"));
  const auto rows = rows_of({.model = file, .source = folder_.path() / "rows.csv", .sets = {}});
  ASSERT_EQ(rows.size(), answers.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const auto evaluated = parse_json(line);
    EXPECT_EQ(evaluated["target"], rows[i]["label"]) << "the column of the file";
    EXPECT_EQ(evaluated["label"], rows[i]["predicted_label"]);
    EXPECT_NEAR(evaluated["score"].get<double>(), answers[i].score, 1e-6);
    EXPECT_NEAR(rows[i]["score"].get<double>(), answers[i].score, 1e-6);
  }
}

TEST_F(Predictors, may_be_called_from_several_threads_at_once) {
  const Predictor predictor(load_model(train(text_config())), 3);
  std::vector<Sample> samples;
  for (int i = 0; i < 10; ++i) samples.push_back(Sample::of_text(text_of(i)));
  const auto expected = predictor.predict(samples);
  std::vector<std::vector<Answer>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : seen) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) mine = predictor.predict(samples);
      });
    }
  }
  for (const auto& mine : seen) {
    ASSERT_EQ(mine.size(), expected.size());
    for (size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(mine[i].scores, expected[i].scores);
  }
}

TEST_F(Predictors, read_images_from_memory) {
  for (const std::string name : {"pictures/cat", "pictures/dog"}) {
    fs::create_directories(folder_.path() / name);
    for (int i = 0; i < 3; ++i) {
      folder_.file(name + "/" + std::to_string(i) + ".jpg", testing::make_jpeg(17 + i, 12 + 3 * i));
    }
  }
  const auto file = train(config_of(
      "[model]\nkind = \"convnet\"\nchannels = [4]\n[data.train]\nkind = \"images\"\n"
      "path = \"pictures\"\nsize = [8]\ncrop = \"random\"\nflip = 0.5\nmean = [0.4, 0.4, 0.4]\n"));
  const Predictor predictor(load_model(file));
  const fs::path image = folder_.path() / "pictures/dog/1.jpg";
  const auto answer = predictor.predict({Sample::of_image(read_file(image))}).front();
  const at::NoGradGuard no_grad;
  const WholeModel model = load_model(file);
  Batch batch = model.images({image});
  batch.fields.set("labels", at::zeros({1}, at::kLong));
  const at::Tensor scores = model.task.predict(batch).outputs.softmax(1);
  EXPECT_NEAR(answer.scores[1], scores[0][1].item<float>(), 1e-6);
  TANREN_EXPECT_CONTAINS(
      error_of<DataError>([&] { predictor.predict({Sample::of_image("GIF89a")}); }), "sample 0: ");
}

TEST_F(Predictors, of_values_return_the_values_of_the_evaluation) {
  const auto file = train(text_config("value"));
  const auto rows = rows_of({.model = file, .source = folder_.path() / "rows.csv"});
  const auto report =
      evaluate_whole_model(file, folder_.path() / "rows.csv", {}, Registry(), nullptr).report;
  double squares = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double off = rows[i]["value"].get<double>() - static_cast<double>(i);
    squares += off * off;
  }
  for (const auto& [name, value] : report.values) {
    if (name == "mse") {
      EXPECT_NEAR(squares / 12, value, 1e-4 * value);
    }
  }
}

TEST_F(Predictors, of_tokens_give_a_row_for_each_and_the_perplexity_of_the_evaluation) {
  folder_.file("book.txt", "the quick brown fox jumps over the lazy dog, and then it sleeps");
  const auto file = train(config_of(
      "[model]\nkind = \"gpt2\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\n"
      "context_length = 8\n[data.train]\nkind = \"text\"\npath = \"book.txt\"\ncontext = 8\n"
      "[data.eval]\nkind = \"text\"\npath = \"book.txt\"\ncontext = 8\n"
      "[evaluate]\nmetrics = [\"perplexity\"]\n"));
  const fs::path book = folder_.path() / "book.txt";
  const auto rows = rows_of({.model = file, .source = book});
  const auto report = evaluate_whole_model(file, book, {}, Registry(), nullptr).report;
  double sum = 0, count = 0;
  for (const auto& row : rows) {
    if (row["token"].is_null()) continue;
    sum += row["log_probability"].get<double>();
    count += 1;
    EXPECT_LE(row["log_probability"], row["score"]);
  }
  EXPECT_EQ(static_cast<int64_t>(count), report.tokens);
  EXPECT_EQ(rows[1]["position"], 1);
  EXPECT_EQ(rows.size(), read_file(book).size() - 1) << "a row for each byte that one follows";
  EXPECT_EQ(rows[0]["token"], 'h') << "the byte after the first";
  for (const auto& [name, value] : report.values) {
    if (name == "perplexity") {
      EXPECT_NEAR(std::exp(-sum / count), value, 1e-4 * value);
    }
  }
}

TEST_F(Predictors, of_a_folder_converted_for_transformers_say_what_the_whole_model_says) {
  for (const std::string label_type : {"class", "value"}) {
    const auto config = text_config(label_type);
    fs::remove_all(folder_.path() / "run");
    fs::remove_all(folder_.path() / "python");
    const auto file = train(config);
    write_python_folder(file, folder_.path() / "python", {}, {});
    const fs::path source = folder_.path() / "rows.csv";
    const auto expected = rows_of({.model = file, .source = source});
    const auto rows = rows_of({.model = folder_.path() / "python", .source = source});
    const std::string column = label_type == "class" ? "score" : "value";
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_NEAR(rows[i][column].get<double>(), expected[i][column].get<double>(), 1e-6);
      EXPECT_EQ(rows[i].dump().substr(0, 20), expected[i].dump().substr(0, 20));
      if (label_type == "class") {
        EXPECT_EQ(rows[i]["predicted_label"], expected[i]["predicted_label"]);
      }
    }
  }
  fs::remove(folder_.path() / "python" / "config.json");
  EXPECT_THROW(rows_of({.model = folder_.path() / "python", .source = folder_.path() / "rows.csv"}),
               ConfigError);
}

TEST_F(Predictors, of_a_folder_with_one_label_say_what_the_pipeline_of_transformers_says) {
  const auto file = train(text_config("value"));
  const fs::path python = folder_.path() / "python", source = folder_.path() / "rows.csv";
  write_python_folder(file, python, {}, {});
  const auto values = rows_of({.model = python, .source = source});
  std::string config = read_file(python / "config.json");
  const auto json = [&](const std::string& type) {
    auto changed = parse_json(config);
    changed.erase("problem_type");
    if (!type.empty()) changed["problem_type"] = type;
    folder_.file("python/config.json", changed.dump());
    return rows_of({.model = python, .source = source});
  };
  for (const std::string type : {"", "multi_label_classification", "single_label_classification"}) {
    const auto rows = json(type);
    for (size_t i = 0; i < rows.size(); ++i) {
      const double logit = values[i]["value"].get<double>();
      EXPECT_NEAR(rows[i]["value"].get<double>(), 1 / (1 + std::exp(-logit)), 1e-6) << type;
    }
  }
  EXPECT_EQ(json("regression")[0]["value"], values[0]["value"]);
}

TEST_F(Predictors, of_a_folder_whose_config_asks_for_more_than_its_weights_have_refuse_it_at_once) {
  const auto file = train(text_config());
  const fs::path python = folder_.path() / "python", source = folder_.path() / "rows.csv";
  write_python_folder(file, python, {}, {});
  const auto json = parse_json(read_file(python / "config.json"));
  const auto error = [&](const char* key, int64_t value) {
    auto changed = json;
    changed[key] = value;
    folder_.file("python/config.json", changed.dump());
    return error_of<InputError>([&] { rows_of({.model = python, .source = source}); });
  };
  TANREN_EXPECT_CONTAINS(error("num_hidden_layers", 200), "config.json asks for 200 layers");
  TANREN_EXPECT_CONTAINS(error("vocab_size", 10'000'000), "its config.json asks for");
  EXPECT_FALSE(error("num_hidden_layers", 100'000'000).empty());
}

TEST_F(Predictors, leave_a_null_where_outputs_are_nan_or_name_the_row) {
  const auto file =
      train(config_of("[model]\nkind = \"mlp\"\nhidden = [8]\n[data.train]\nkind = \"csv\"\n"
                      "path = \"" +
                      folder_.file("t.csv", "label,a\n0,1\n1,2\n0,3\n1,4\n") + "\"\n"));
  // The second row overflows: the outputs are infinite, and their softmax is NaN.
  const fs::path source = folder_.file("new.csv", "a\n1\n3e38\n2\n");
  const auto read = read_safetensors(file);
  TensorMap tensors;
  for (const auto& [name, tensor] : read.tensors) {
    tensors.set(name, name.ends_with("weight") ? tensor.abs() * 1000 : tensor);
  }
  const fs::path large = folder_.path() / "large.safetensors";
  write_safetensors(large, tensors, read.metadata);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { rows_of({.model = large, .source = source}); }),
                         "new.csv:3: the model's outputs hold NaN");
  const auto rows = rows_of({.model = large, .source = source, .sets = {"predict.broken=skip"}});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[1]["label"].is_null());
  EXPECT_FALSE(rows[0]["label"].is_null());
  EXPECT_FALSE(rows[2]["label"].is_null());
}

// Issue 26: the class names were sorted again, so that every label meant another class.
TEST_F(Predictors, of_an_unfinished_run_of_texts_whose_classes_changed_are_refused) {
  auto config = text_config();
  config.run.stop_after = 2;
  train(config);
  const PredictInput input{.model = folder_.path() / "run",
                           .source = folder_.file("new.txt", "the a b\n")};
  EXPECT_EQ(rows_of(input).size(), 1u);
  std::string rows = read_file(folder_.path() / "rows.csv");
  for (size_t at = rows.find("word"); at != std::string::npos; at = rows.find("word")) {
    rows.replace(at, 4, "a");  // before "letter"
  }
  folder_.file("rows.csv", rows);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { rows_of(input); }),
                         "[predict] the class names of data.train (");
}

TEST_F(Predictors, of_tensors_read_samples_without_labels) {
  const auto text = text_config();
  TensorMap train_tensors, new_tensors;
  train_tensors.set("inputs", at::arange(24, at::kFloat).view({8, 3}) / 24);
  train_tensors.set("labels", at::tensor({0, 1, 0, 1, 2, 2, 1, 0}, at::kLong));
  new_tensors.set("inputs", at::arange(12, at::kFloat).view({4, 3}) / 24);
  write_safetensors(folder_.path() / "train.safetensors", train_tensors);
  write_safetensors(folder_.path() / "new.safetensors", new_tensors);
  const auto file =
      train(config_of("[model]\nkind = \"mlp\"\nhidden = [8]\n[data.train]\nkind = \"tensors\"\n"
                      "path = \"train.safetensors\"\n"));
  const auto rows = rows_of({.model = file, .source = folder_.path() / "new.safetensors"});
  const auto labelled = rows_of({.model = file, .source = folder_.path() / "train.safetensors"});
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["row"], i);
    EXPECT_EQ(rows[i]["label"], labelled[i]["label"]);
    EXPECT_NEAR(rows[i]["score"].get<double>(), labelled[i]["score"].get<double>(), 1e-6);
  }
  predict_file({.model = file,
                .source = folder_.path() / "new.safetensors",
                .out = folder_.path() / "answers.safetensors"},
               {});
  const auto answers = read_safetensors(folder_.path() / "answers.safetensors").tensors;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    EXPECT_EQ(answers.at("label")[row].item<int64_t>(), rows[i]["label"]);
    EXPECT_EQ(answers.at("score")[row].item<float>(), rows[i]["score"].get<float>());
  }
  EXPECT_FALSE(fs::exists(folder_.path() / "answers.safetensors.partial"));
  new_tensors.set("inputs", at::zeros({4, 2}));
  write_safetensors(folder_.path() / "new.safetensors", new_tensors);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] {
                           rows_of({.model = file, .source = folder_.path() / "new.safetensors"});
                         }),
                         "a sample is [2], and the model was trained on [3]");
}

TEST_F(Predictors, stopped_on_the_way_and_called_again_write_the_bytes_of_one_call) {
  const auto file = train(text_config());
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += text_of(i) + " a\n";
  const PredictInput whole{.model = file,
                           .source = folder_.file("new.txt", lines),
                           .out = folder_.path() / "whole.csv",
                           .sets = {"evaluate.batch=4", "run.threads=1"}};
  EXPECT_EQ(predict_file(whole, {}).rows, 300);
  PredictInput parts = whole;
  parts.out = folder_.path() / "parts.csv";
  std::atomic<bool> stop = true;
  parts.stop = &stop;
  const auto nothing = predict_file(parts, {});
  EXPECT_TRUE(nothing.stopped);
  EXPECT_EQ(nothing.rows, 0);
  int64_t stops = 0;
  for (bool stopped = true; stopped;) {
    stop = false;
    // The stop comes at some moment after the first window.
    std::jthread later([&, wait = std::chrono::milliseconds(20 + 7 * stops)] {
      std::this_thread::sleep_for(wait);
      stop = true;
    });
    const auto output = predict_file(parts, {});
    stopped = output.stopped;
    stops += stopped ? 1 : 0;
    ASSERT_LT(stops, 500);
    if (!stopped) {
      EXPECT_EQ(output.rows, 300);
    }
  }
  EXPECT_EQ(read_file(parts.out), read_file(whole.out));
}

}  // namespace
}  // namespace tanren
