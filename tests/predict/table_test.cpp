// Models of tables as people have them. The model keeps what training learnt about the columns, so
// that evaluations and predictions read any file in the same way.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/config/read_config.h"
#include "tanren/formats/safetensors.h"
#include "tanren/predict/predict_file.h"
#include "tanren/predict/predictor.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <sstream>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class Tables : public ::testing::Test {
 protected:
  Tables() {
    std::string train = "id;colour;size;weight;kind\n";
    for (int i = 0; i < 24; ++i) {
      const std::string size = i % 7 == 3 ? "" : std::to_string(i) + ",5";
      train += "n" + std::to_string(i) + ";" + (i % 3 ? "red" : "\"blue; dark\"") + ";" + size +
               ";" + std::to_string(1000 + i * i) + ";" + (i % 2 ? "plum" : "apple") + "\n";
    }
    folder_.file("train.csv", train);
    // Differs from the training table: other columns, another order, another delimiter and decimal
    // point, an unknown colour.
    folder_.file("eval.csv",
                 "kind,weight,note,size,colour\nplum,1100,x,3.5,red\napple,1010,y,,\"blue; dark\"\n"
                 "plum,1400,\"a, b\",9.5,green\napple,1200.5,z,12,red\n");
  }
  RunConfig config(const std::vector<std::string>& sets = {}) const {
    return parse_config(
        "[run]\nname = \"t\"\nsteps = 8\nthreads = 1\nseed = 3\n[model]\nkind = \"mlp\"\n"
        "hidden = [8]\n[data.train]\nkind = \"csv\"\npath = \"train.csv\"\nlabel = \"kind\"\n"
        "ignore = [\"id\"]\ncategories = [\"colour\"]\nstandardize = true\nmissing = \"mean\"\n"
        "decimal = \",\"\n[data.eval]\nkind = \"csv\"\npath = \"eval.csv\"\nlabel = \"kind\"\n"
        "decimal = \".\"\n[batch]\nglobal_batch = 6\n[precision]\nmode = \"fp32\"\n"
        "[optimizer]\nlearning_rate = 0.01\n[checkpoint]\nevery = 2\n",
        "t.toml", folder_.path(), sets, ModelRegistry().kinds());
  }
  fs::path train(const std::vector<std::string>& sets = {}) const {
    run({.config = config(sets), .folder = place()}, {});
    return place() / "model.tanren.safetensors";
  }
  fs::path place() const { return folder_.path() / "run"; }
  std::vector<nlohmann::json> lines_of(const fs::path& file) const {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line));
    return rows;
  }
  std::vector<nlohmann::json> rows_of(const fs::path& model, const std::string& source,
                                      const std::vector<std::string>& sets = {}) const {
    const fs::path out = folder_.path() / "rows.jsonl";
    predict_file({.model = model,
                  .source = folder_.path() / source,
                  .out = out,
                  .replaces = true,
                  .sets = sets},
                 {});
    return lines_of(out);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Tables, are_predicted_as_they_are_evaluated_without_their_training_data) {
  const fs::path file = train();
  const fs::path evaluated = folder_.path() / "eval.jsonl";
  const auto in_run =
      evaluate_checkpoint(config(), place() / "model.safetensors", {}, nullptr, {}, {evaluated});
  EXPECT_EQ(in_run.class_names, (std::vector<std::string>{"apple", "plum"}));
  fs::remove(folder_.path() / "train.csv");
  const auto alone =
      evaluate_whole_model(file, folder_.path() / "eval.csv", {}, Registry(), nullptr);
  EXPECT_EQ(alone.report.values, in_run.report.values);
  const auto expected = lines_of(evaluated);
  ASSERT_EQ(expected.size(), 4u);
  for (const fs::path& model : {file, place()}) {
    const auto rows = rows_of(model, "eval.csv");
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i]["label"], expected[i]["label"]) << i;
      EXPECT_NEAR(rows[i]["score"].get<double>(), expected[i]["score"].get<double>(), 1e-6) << i;
      EXPECT_EQ(expected[i]["target"], rows[i]["kind"]);
    }
    EXPECT_EQ(rows[2]["note"], "a, b");
    EXPECT_EQ(rows[0]["weight"], 1100) << "a number";
    EXPECT_EQ(rows[0]["colour"], "red");
  }
}

TEST_F(Tables, are_predicted_alike_from_any_file_and_from_memory) {
  const fs::path file = train();
  const auto expected = rows_of(file, "eval.csv");
  folder_.file("new.tsv", "colour\tsize\tweight\nred\t3.5\t1100\nblue; dark\tNA\t1010\n");
  folder_.file("new.jsonl",
               "{\"size\": 3.5, \"colour\": \"red\", \"weight\": 1100}\n"
               "{\"size\": null, \"colour\": \"blue; dark\", \"weight\": 1010}\n");
  folder_.file("new.csv", "size;weight;colour\n3,5;1100;red\n;1010;\"blue; dark\"\n");
  const auto expect_same = [&](const std::vector<nlohmann::json>& rows) {
    ASSERT_EQ(rows.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(rows[i]["label"], expected[i]["label"]);
      EXPECT_NEAR(rows[i]["score"].get<double>(), expected[i]["score"].get<double>(), 1e-6);
    }
  };
  expect_same(rows_of(file, "new.tsv"));
  expect_same(rows_of(file, "new.jsonl"));
  expect_same(rows_of(file, "new.csv", {"data.eval.decimal=,"}));
  const Predictor predictor(load_model(file));
  const auto answers = predictor.predict(
      {Sample::of_cells({{"colour", "red"}, {"size", "3.5"}, {"weight", "1100"}, {"more", "x"}}),
       Sample::of_cells({{"colour", "blue; dark"}, {"size", ""}, {"weight", "1010"}})});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(predictor.label_of(answers[i]), expected[i]["label"].get<std::string>());
    EXPECT_NEAR(answers[i].score, expected[i]["score"].get<double>(), 1e-6);
  }
}

TEST_F(Tables, with_decimal_commas_keep_the_points_of_categories) {
  std::string text = read_file(folder_.path() / "train.csv");
  for (size_t at = text.find(";red;"); at != std::string::npos; at = text.find(";red;")) {
    text.replace(at, 5, ";1.5;");
  }
  folder_.file("train.csv", text);
  const fs::path file = train();
  folder_.file("new.csv", "size;weight;colour\n3,5;1100;1.5\n");
  folder_.file("new.jsonl", "{\"size\": 3.5, \"colour\": 1.5, \"weight\": 1100}\n");
  const auto expected = rows_of(file, "new.csv", {"data.eval.decimal=,"});
  const auto rows = rows_of(file, "new.jsonl", {"data.eval.decimal=,"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["label"], expected.at(0)["label"]);
  EXPECT_NEAR(rows[0]["score"].get<double>(), expected[0]["score"].get<double>(), 1e-6);
}

TEST_F(Tables, without_a_column_of_training_are_refused_with_both_lists) {
  const fs::path file = train();
  folder_.file("new.csv", "colour,size\nred,1\n");
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { rows_of(file, "new.csv"); }),
                         "there is no column \"weight\"; the model was trained on colour, size, "
                         "weight, and the file has colour, size; rename its columns");
  folder_.file("labelled.csv", "colour,size,kind\nred,1,plum\n");
  TANREN_EXPECT_CONTAINS(
      error_of<DataError>([&] {
        evaluate_whole_model(file, folder_.path() / "labelled.csv", {}, Registry(), nullptr);
      }),
      "there is no column \"weight\"; data.train was read by colour, size, weight, and this file "
      "has colour, size, kind");
  folder_.file("names.csv", "colour,size,weight,kind\nred,1,2,pear\n");
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] {
                           evaluate_whole_model(file, folder_.path() / "names.csv", {}, Registry(),
                                                nullptr);
                         }),
                         "label \"pear\" is none of the classes apple, plum that data.train has");
}

TEST_F(Tables, with_cells_that_are_no_numbers_are_broken_by_row) {
  const fs::path file = train();
  folder_.file("new.csv", "colour,size,weight\nred,x,1\nred,1,inf\nred,1,2\n");
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { rows_of(file, "new.csv"); }),
                         "new.csv:2: column size: \"x\" is not a number; fix the cell");
  const auto rows = rows_of(file, "new.csv", {"predict.broken=skip"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[0]["label"].is_null());
  EXPECT_TRUE(rows[1]["label"].is_null());
  EXPECT_FALSE(rows[2]["label"].is_null());
  const Predictor predictor(load_model(file));
  const auto error = [&](const Sample& sample) {
    return error_of<DataError>([&] { predictor.predict({sample}); });
  };
  TANREN_EXPECT_CONTAINS(error(Sample::of_cells({{"colour", "red"}, {"size", "1"}})),
                         "sample 0: has no cell \"weight\"; the model reads colour, size, weight");
  TANREN_EXPECT_CONTAINS(
      error(Sample::of_cells({{"colour", "red"}, {"size", "x"}, {"weight", "1"}})),
      "column size: \"x\" is not a number");
  TANREN_EXPECT_CONTAINS(error(Sample::of_numbers({1, 2})),
                         "has 2 numbers, and the model reads 3 columns: colour, size, weight");
  TANREN_EXPECT_CONTAINS(error(Sample::of_numbers({1, 2, 3})), "column colour is a category");
}

TEST_F(Tables, of_plain_numbers_keep_no_encoding_and_take_cells_by_name) {
  folder_.file("train.csv", "b,label,a\n1,0,2\n3,1,4\n5,0,6\n7,1,8\n");
  const RunConfig plain = parse_config(
      "[run]\nname = \"t\"\nsteps = 4\nthreads = 1\n[model]\nkind = \"mlp\"\nhidden = [4]\n"
      "[data.train]\nkind = \"csv\"\npath = \"train.csv\"\nscale = 0.5\n[batch]\n"
      "global_batch = 2\n[precision]\nmode = \"fp32\"\n",
      "t.toml", folder_.path(), {}, ModelRegistry().kinds());
  run({.config = plain, .folder = place()}, {});
  const fs::path file = place() / "model.tanren.safetensors";
  EXPECT_EQ(read_safetensors(file).metadata.at("tanren.data").find("\"table\""), std::string::npos);
  const Predictor predictor(load_model(file));
  const auto answers =
      predictor.predict({Sample::of_numbers({3, 4}), Sample::of_cells({{"a", "4"}, {"b", " 3 "}})});
  EXPECT_EQ(answers[0].scores, answers[1].scores);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] {
                           predictor.predict({Sample::of_cells({{"a", ""}, {"b", "1"}})});
                         }),
                         "column a is empty");
}

TEST_F(Tables, of_a_hostile_model_are_refused_by_name) {
  const SafetensorsFile read = read_safetensors(train());
  const std::string data = read.metadata.at("tanren.data");
  const auto error = [&](const std::string& from, const std::string& to) {
    SafetensorsFile other = read;
    std::string& text = other.metadata["tanren.data"];
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    text.replace(at, from.size(), to);
    const fs::path file = folder_.path() / "changed.safetensors";
    write_safetensors(file, other.tensors, other.metadata);
    auto said = error_of<InputError>([&] { load_model(file); });
    TANREN_EXPECT_CONTAINS(said, "changed.safetensors");
    return said;
  };
  TANREN_EXPECT_CONTAINS(error("\"decimal\":\",\"", "\"decimal\":\"\""), "no usable table");
  TANREN_EXPECT_CONTAINS(error("\"fills\":true", "\"fills\":1"), "no usable table");
  TANREN_EXPECT_CONTAINS(error("\"name\":\"size\"", "\"name\":\"other\""),
                         "a table that does not fit its feature_names");
  TANREN_EXPECT_CONTAINS(error("\"values\":[", "\"values\":[\"a\","), "does not fit");
  TANREN_EXPECT_CONTAINS(error("\"values\":[", "\"values\":[\"z\","), "that is not usable");
  TANREN_EXPECT_CONTAINS(error("\"deviation\":", "\"deviation\":-"), "that is not usable");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  TANREN_EXPECT_CONTAINS(error("\"values\":[", "\"values\":[" + deep + ","), "that is not usable");
}

TEST_F(Tables, that_changed_give_an_unfinished_run_no_evaluation_and_no_predictions) {
  run({.config = config({"run.stop_after=4"}), .folder = place()}, {});
  const auto checkpoint = place() / "checkpoints" / "step-4";
  const auto evaluated = [&] {
    return evaluate_checkpoint(config(), checkpoint, {}, nullptr, {}, {});
  };
  EXPECT_NO_THROW(evaluated());
  EXPECT_EQ(rows_of(place(), "eval.csv").size(), 4u);
  const auto change = [&](const std::string& name, const std::string& from, const std::string& to) {
    std::string text = read_file(folder_.path() / name);
    for (size_t at = text.find(from); at != std::string::npos;
         at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    folder_.file(name, text);
  };
  change("train.csv", ";1000;", ";5000;");  // another mean
  const std::string measured = "] the columns and what was measured of data.train (";
  TANREN_EXPECT_CONTAINS(error_of<DataError>(evaluated), "[eval" + measured);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { rows_of(place(), "eval.csv"); }),
                         "[predict" + measured);
  change("train.csv", ";5000;", ";1000;");
  for (const char* file : {"train.csv", "eval.csv"}) change(file, "apple", "quince");
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { rows_of(place(), "eval.csv"); }),
                         "[predict] the class names of data.train (");
}

// Issue 26: the weights of one column were multiplied with the numbers of another.
TEST_F(Tables, of_plain_numbers_whose_columns_changed_places_are_not_those_of_training) {
  const std::string text = "b,label,a\n1,0,2\n3,1,4\n5,0,6\n7,1,8\n";
  folder_.file("train.csv", text);
  RunConfig plain = parse_config(
      "[run]\nname = \"t\"\nsteps = 4\nthreads = 1\n[model]\nkind = \"mlp\"\nhidden = [4]\n"
      "[data.train]\nkind = \"csv\"\npath = \"train.csv\"\n[batch]\nglobal_batch = 2\n"
      "[precision]\nmode = \"fp32\"\n",
      "t.toml", folder_.path(), {}, ModelRegistry().kinds());
  plain.run.stop_after = 2;
  run({.config = plain, .folder = place()}, {});
  folder_.file("new.csv", "a,b\n2,1\n");
  EXPECT_EQ(rows_of(place(), "new.csv").size(), 1u);
  folder_.file("train.csv", "a" + text.substr(1, 7) + "b" + text.substr(9));
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { rows_of(place(), "new.csv"); }),
                         "[predict] the columns of data.train (");
}

// Issue 26: only checkpoints were checked against the data that they were trained on.
TEST_F(Tables, that_changed_give_exported_weights_no_evaluation) {
  train();
  fs::remove_all(place() / "checkpoints");
  const auto evaluated = [&] {
    return evaluate_checkpoint(config(), place() / "model.safetensors", {}, nullptr, {}, {});
  };
  EXPECT_NO_THROW(evaluated());
  const auto expect_refused = [&](const std::string& from, const std::string& to,
                                  const std::string& what) {
    std::vector<std::string> before;
    for (const char* name : {"train.csv", "eval.csv"}) {
      std::string text = before.emplace_back(read_file(folder_.path() / name));
      for (size_t at = text.find(from); at != std::string::npos;
           at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
      }
      folder_.file(name, text);
    }
    TANREN_EXPECT_CONTAINS(error_of<DataError>(evaluated), "[eval] the " + what + " (");
    folder_.file("train.csv", before[0]);
    folder_.file("eval.csv", before[1]);
  };
  expect_refused(";1000;", ";5000;", "columns and what was measured of data.train");
  expect_refused("size;weight", "weight;size", "columns of data.train");
  expect_refused("apple", "quince", "class names of data.train");
}

// Issue 26: an error in a part of the description that evaluations do not read ended them.
TEST_F(Tables, are_compared_by_what_can_be_read_of_the_description_of_exported_weights) {
  train();
  const SafetensorsFile read = read_safetensors(place() / "model.safetensors");
  const fs::path file = place() / "other.safetensors";
  const auto evaluated = [&] { return evaluate_checkpoint(config(), file, {}, nullptr, {}, {}); };
  const auto write = [&](const nlohmann::json& data) {
    Metadata metadata = read.metadata;
    metadata["tanren.version"] = "9";
    metadata["tanren.data"] = json_text(data);
    write_safetensors(file, read.tensors, metadata);
  };
  nlohmann::json data = parse_json(read.metadata.at("tanren.data"));
  for (const char* key : {"input_shape", "outputs", "vocab_size", "class_labels"}) data.erase(key);
  write(data);
  EXPECT_NO_THROW(evaluated());
  data["class_names"] = {"apple", "pear"};
  write(data);
  TANREN_EXPECT_CONTAINS(error_of<DataError>(evaluated), "[eval] the class names of data.train (");
  data.erase("class_names");
  write(data);
  EXPECT_NO_THROW(evaluated());
  data["table"] = 1;
  write(data);
  std::string told;
  const LogSink before = set_log_sink([&](std::string_view line) { told += line; });
  EXPECT_NO_THROW(evaluated());
  set_log_sink(before);
  TANREN_EXPECT_CONTAINS(told, "does not say how its data were read");
}

TEST_F(Tables, that_changed_are_refused_when_their_run_goes_on) {
  run({.config = config({"run.stop_after=4"}), .folder = place()}, {});
  const std::string train = read_file(folder_.path() / "train.csv");
  const auto error = [&](const std::string& from, const std::string& to,
                         const std::vector<std::string>& sets = {}) {
    std::string other = train;
    for (size_t at = from.empty() ? std::string::npos : other.find(from); at != std::string::npos;
         at = other.find(from, at + to.size())) {
      other.replace(at, from.size(), to);
    }
    folder_.file("train.csv", other);
    auto said = error_of<InputError>([&] { run({.config = config(sets), .folder = place()}, {}); });
    folder_.file("train.csv", train);
    return said;
  };
  TANREN_EXPECT_CONTAINS(error("apple", "apples", {"data.eval.kind="}), "class names");
  TANREN_EXPECT_CONTAINS(error(";red;", ";rose;"), "columns and what was measured");
  TANREN_EXPECT_CONTAINS(error("", "", {"data.train.missing=zero"}), "data.train.missing");
  TANREN_EXPECT_CONTAINS(error("", "", {"data.train.standardize=false"}), "data.train.standardize");
  // The same rows with another delimiter and with other names of their own.
  std::string other = train;
  for (size_t at = other.find("\nn"); at != std::string::npos; at = other.find("\nn", at + 1)) {
    other[at + 1] = 'm';
  }
  const std::string quoted = "\"blue; dark\"", kept = "BLUE";
  for (size_t at = other.find(quoted); at != std::string::npos; at = other.find(quoted)) {
    other.replace(at, quoted.size(), kept);
  }
  for (char& c : other) c = c == ';' ? '|' : c;
  for (size_t at = other.find(kept); at != std::string::npos; at = other.find(kept)) {
    other.replace(at, kept.size(), "blue; dark");
  }
  folder_.file("train.csv", other);
  const auto output = run({.config = config(), .folder = place()}, {});
  EXPECT_EQ(output.summary.status, "finished");
}

}  // namespace
}  // namespace tanren
