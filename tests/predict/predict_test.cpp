// tanren predict as a user meets it: what is written, what is refused, and what survives.
#include "tests/predict/predict_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Predict : public PredictFiles {};

TEST_F(Predict, refuses_a_model_or_a_source_that_is_none) {
  train("run.toml");
  folder_.file("new.csv", new_rows(3));
  expect("predict absent new.csv", 2, {"there is no absent; name a run folder"});
  expect("predict out absent.csv", 2, {"there is no absent.csv; name the file or folder"});
  expect("predict run.toml new.csv", 2, {"run.toml is no model"});
  expect("predict . new.csv", 2, {"neither a run folder (config.toml) nor"});
  expect("predict out new.csv --out new.parquet", 2, {"end its name in .csv, .jsonl or"});
  expect("predict out new.csv --out absent/p.csv", 2, {"cannot write absent/p.csv.partial"});
  expect("predict out", 2, {"SOURCE"});
  EXPECT_FALSE(exists("new.predictions.csv"));
}

TEST_F(Predict, refuses_columns_that_are_not_those_of_training_with_both_lists) {
  train("run.toml");
  folder_.file("new.csv", "a,c,d\n1,2,3\n");
  expect("predict out new.csv", 2,
         {"new.csv:1", "there is no column \"b\"", "trained on a, b, and the file has a, c, d"});
  folder_.file("twice.csv", "a,b,a\n1,2,3\n");
  expect("predict out twice.csv", 2, {"two columns are called \"a\""});
  folder_.file("new.jsonl", "{\"a\": 1, \"c\": 2}\n");
  expect("predict out new.jsonl", 2, {"trained on a, b, and the file has a, c"});
  EXPECT_FALSE(exists("new.predictions.csv"));
  EXPECT_FALSE(exists("new.predictions.csv.partial"));
}

TEST_F(Predict, refuses_empty_files_and_what_is_no_text) {
  train("run.toml");
  folder_.file("empty.csv", "");
  folder_.file("header.csv", "a,b\n");
  folder_.file("binary.csv", std::string("a,b\n1,\0\n", 8));
  expect("predict out empty.csv", 2, {"empty.csv is empty; it needs a header line"});
  expect("predict out header.csv", 2, {"header.csv holds no rows"});
  expect("predict out binary.csv", 2, {"binary.csv:2: byte 3 is 0, which no text holds"});
  make_texts();
  ASSERT_EQ(tanren("run texts.toml --quiet --out texts").code, 0);
  const std::string predict = forked_tanren() + " predict texts -";
  const auto binary = shell("head -c 300 " TANREN_BINARY " | " + predict, folder_.path());
  EXPECT_EQ(binary.code, 2);
  TANREN_EXPECT_CONTAINS(binary.output, "[predict] standard input:1: byte ");
  const auto nothing = shell(predict + " </dev/null", folder_.path());
  EXPECT_EQ(nothing.code, 2);
  TANREN_EXPECT_CONTAINS(nothing.output, "standard input holds no rows");
}

TEST_F(Predict, writes_the_rows_in_their_order_with_label_and_score_behind_them) {
  train("run.toml");
  folder_.file("new.csv", new_rows(50));
  expect("predict out new.csv", 0, {"new.predictions.csv: 50 rows"});
  const Table table = table_of(read("new.predictions.csv"));
  ASSERT_EQ(table.size(), 51u);
  EXPECT_EQ(table[0], (std::vector<std::string>{"id", "b", "a", "label", "score"}));
  for (size_t i = 1; i < table.size(); ++i) {
    ASSERT_EQ(table[i].size(), 5u);
    EXPECT_EQ(table[i][0], "r" + std::to_string(i - 1));
    EXPECT_TRUE(std::set<std::string>({"0", "1", "2"}).count(table[i][3])) << table[i][3];
    EXPECT_GT(std::stod(table[i][4]), 1.0 / 3);
  }
  EXPECT_FALSE(exists("new.predictions.csv.partial"));
  EXPECT_FALSE(exists("new.predictions.csv.partial.json"));
  // A whole model gives the same predictions, wherever its file is.
  fs::copy_file(at("out/model.tanren.safetensors"), at("alone.safetensors"));
  expect("predict alone.safetensors new.csv --out other.csv --quiet", 0);
  EXPECT_EQ(read("other.csv"), read("new.predictions.csv"));
}

TEST_F(Predict, does_not_touch_a_file_that_is_there_unless_it_is_forced) {
  train("run.toml");
  folder_.file("new.csv", new_rows(4));
  folder_.file("new.predictions.csv", "precious");
  expect("predict out new.csv", 2, {"new.predictions.csv is there", "--force"});
  EXPECT_EQ(read("new.predictions.csv"), "precious");
  expect("predict out new.csv --force", 0);
  EXPECT_EQ(table_of(read("new.predictions.csv")).size(), 5u);
}

TEST_F(Predict, never_writes_over_what_it_reads_or_into_a_folder) {
  train("run.toml");
  folder_.file("new.csv", new_rows(4));
  fs::create_directories(at("folder.csv"));
  fs::copy_file(at("out/model.tanren.safetensors"), at("alone.safetensors"));
  const std::string rows = read("new.csv"), model = read("alone.safetensors");
  expect("predict out new.csv --force --out new.csv", 2, {"new.csv is what is to be predicted"});
  expect("predict out new.csv --force --out folder.csv", 2, {"folder.csv is a folder"});
  expect("predict alone.safetensors new.csv --force --out alone.safetensors", 2,
         {"alone.safetensors is the model"});
  expect("predict out new.csv --force --out out/model.tanren.safetensors", 2, {"is the model"});
  expect("predict out new.csv --force --out out/log.jsonl", 2, {"is the model"});
  expect("predict out new.csv --force --out train.csv", 2, {"belongs to the data"});
  fs::copy_file(at("new.csv"), at("p.csv.partial"));
  expect("predict out p.csv.partial --force --out p.csv", 2, {"is what is to be predicted"});
  EXPECT_EQ(read("p.csv.partial"), rows);
  EXPECT_EQ(read("new.csv"), rows);
  EXPECT_EQ(read("alone.safetensors"), model);
}

TEST_F(Predict, takes_what_the_run_says_of_predictions_and_says_which_weights_it_took) {
  train("run.toml", " --set predict.scores=all");
  folder_.file("new.csv", new_rows(4));
  expect("predict out new.csv", 0, {"by the weights of out/model.tanren.safetensors, step 6"});
  EXPECT_EQ(table_of(read("new.predictions.csv"))[0].size(), 8u);
  expect("predict out new.csv --quiet --out best.csv --set predict.scores=best", 0);
  EXPECT_EQ(table_of(read("best.csv"))[0].size(), 5u);
}

TEST_F(Predict, goes_on_with_another_batch_that_is_asked_for_in_the_windows_of_before) {
  train("run.toml");
  folder_.file("new.csv", new_rows(40000));
  expect("predict out new.csv --quiet --out whole.csv", 0);
  ASSERT_EQ(shell("ulimit -f 320; trap '' XFSZ; exec " + std::string(TANREN_BINARY) +
                      " predict out new.csv",
                  folder_.path())
                .code,
            2);
  expect("predict out new.csv --set evaluate.batch=3", 0, {"(went on after row "});
  const Table whole = table_of(read("whole.csv")), gone_on = table_of(read("new.predictions.csv"));
  ASSERT_EQ(whole.size(), gone_on.size());
  for (size_t i = 1; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i][3], gone_on[i][3]);
    EXPECT_NEAR(std::stod(whole[i][4]), std::stod(gone_on[i][4]), 1e-6);
  }
}

TEST_F(Predict, ends_at_a_signal_while_it_waits_for_standard_input) {
  train("run.toml");
  const std::string pipe = at("rows").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int held = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);  // so that readers see no end of file
  ASSERT_GE(held, 0);
  for (const bool has_rows : {false, true}) {
    Child child(
        {"/bin/sh", "-c",
         "cd '" + folder_.path().string() + "' && exec " + TANREN_BINARY + " predict out - <rows"});
    const std::string rows = has_rows ? new_rows(3) : "";
    ASSERT_EQ(::write(held, rows.data(), rows.size()), std::ssize(rows));
    const auto waits = [&] { return hears_sigterm(child.pid()) && unread(held) == 0; };
    EXPECT_TRUE(comes_true(waits)) << child.text();
    EXPECT_EQ(child.ended(milliseconds(500)), -1) << child.text();
    child.signal(SIGTERM);
    EXPECT_EQ(child.ended(seconds(10)), 130) << child.text();
  }
  ::close(held);
}

TEST_F(Predict, says_how_many_texts_were_cut) {
  make_texts();
  train("texts.toml");
  std::string text = "a b\n";
  for (int i = 0; i < 40; ++i) text += "c ";
  folder_.file("new.txt", text + "\n");
  expect("predict out new.txt", 0,
         {"texts that were cut to the 12 tokens that the model reads: 1"});
  folder_.file("short.txt", "a b\n");
  const auto quiet = expect("predict out short.txt", 0);
  EXPECT_EQ(quiet.find("texts that were cut"), std::string::npos);
}

TEST_F(Predict, of_an_evaluation_that_cannot_be_written_is_refused_before_or_loses_no_metric) {
  train("run.toml");
  expect("eval out --predictions absent/p.csv", 2, {"there is no folder absent"});
  fs::create_directories(at("p.csv"));
  expect("eval out --force --predictions p.csv", 2, {"p.csv is a folder"});
  const auto full = shell("ulimit -f 0; trap '' XFSZ; exec " + std::string(TANREN_BINARY) +
                              " eval out --predictions full.csv",
                          folder_.path());
  EXPECT_EQ(full.code, 2);
  TANREN_EXPECT_CONTAINS(full.output, "accuracy ");
  TANREN_EXPECT_CONTAINS(full.output, "full.csv");
  EXPECT_FALSE(exists("full.csv"));
}

TEST_F(Predict, of_a_folder_that_is_called_by_a_dot_has_the_name_of_the_folder) {
  make_images();
  train("images.toml");
  const auto result =
      shell("cd eval/cat && " + forked_tanren() + " predict ../../out . --quiet && " +
                forked_tanren() + " predict ../../out . --quiet --out p.csv",
            folder_.path());
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(table_of(read("eval/cat.predictions.csv")).size(), 4u);
  EXPECT_EQ(read("eval/cat/p.csv"), read("eval/cat.predictions.csv"));
}

TEST_F(Predict, writes_the_score_of_every_class_if_it_is_asked_to) {
  train("run.toml");
  folder_.file("new.csv", new_rows(5));
  expect("predict out new.csv --quiet --set predict.scores=all", 0);
  const Table table = table_of(read("new.predictions.csv"));
  EXPECT_EQ(table[0], (std::vector<std::string>{"id", "b", "a", "label", "score", "score_0",
                                                "score_1", "score_2"}));
  for (size_t i = 1; i < table.size(); ++i) {
    const auto& row = table[i];
    const std::vector<double> scores{std::stod(row[5]), std::stod(row[6]), std::stod(row[7])};
    EXPECT_NEAR(scores[0] + scores[1] + scores[2], 1, 1e-6);
    EXPECT_EQ(std::stod(row[4]), *std::max_element(scores.begin(), scores.end()));
    EXPECT_EQ(scores[std::stoul(row[3])], std::stod(row[4]));
  }
  expect("predict out new.csv --quiet --set predict.scores=all --out new.jsonl", 0);
  const auto first =
      nlohmann::json::parse(read("new.jsonl").substr(0, read("new.jsonl").find('\n')));
  EXPECT_EQ(first["id"], "r0");
  EXPECT_EQ(first["b"], 0.5);
  EXPECT_EQ(first["scores"].size(), 3u);
  EXPECT_EQ(first["scores"][first["label"].dump()], first["score"]);
}

TEST_F(Predict, names_the_line_of_a_broken_row_or_leaves_null_in_place_of_broken_rows) {
  train("run.toml");
  folder_.file("new.csv", "a,b\n1,2\nx,2\n3,4\n5\n\n6,\n7,8\n");
  expect("predict out new.csv", 2,
         {"[predict] new.csv:3: column a: \"x\" is not a number", "predict.broken = \"skip\""});
  EXPECT_FALSE(exists("new.predictions.csv"));
  EXPECT_EQ(table_of(read("new.predictions.csv.partial")).size(), 2u) << "the row before it stays";
  expect("predict out new.csv --set predict.broken=skip", 0,
         {"6 rows (went on after row 1), 3 of them broken"});
  const auto piped = shell(forked_tanren() + " predict out - <new.csv 2>error", folder_.path());
  EXPECT_EQ(piped.code, 2);
  EXPECT_EQ(table_of(piped.output).size(), 2u) << piped.output;
  const Table table = table_of(read("new.predictions.csv"));
  ASSERT_EQ(table.size(), 7u);
  for (const size_t broken : {2, 4, 5}) {
    EXPECT_EQ(table[broken][2], "");
    EXPECT_EQ(table[broken][3], "");
  }
  for (const size_t sound : {1, 3, 6}) EXPECT_NE(table[sound][2], "");
  EXPECT_EQ(table[2][0], "x");
  expect("predict out new.csv --set predict.broken=skip --quiet --out new.jsonl", 0);
  TANREN_EXPECT_CONTAINS(read("new.jsonl"), R"({"a":"x","b":2,"label":null,"score":null})");
}

// Issue 26: predict ended with 2, as if the input had been wrong.
TEST_F(Predict, to_a_full_standard_output_ends_with_1) {
  train("run.toml");
  folder_.file("new.csv", new_rows(1));
  expect("predict out - <new.csv >/dev/full", 1,
         {"[predict] cannot write to standard output (No space left on device); make room\n"});
  expect("predict out new.csv >/dev/full", 1, {"[predict] cannot write to standard output; make"});
  expect("predict out new.csv --force", 0, {"new.predictions.csv: 1 row, by"});
}

TEST_F(Predict, keeps_columns_that_are_called_like_its_own) {
  train("run.toml");
  folder_.file("new.csv", "label,a,b\n2,1,0.5\n");
  expect("predict out new.csv --quiet", 0);
  const Table table = table_of(read("new.predictions.csv"));
  EXPECT_EQ(table[0], (std::vector<std::string>{"label", "a", "b", "predicted_label", "score"}));
  EXPECT_EQ(table[1][0], "2");
}

TEST_F(Predict, says_the_same_as_an_evaluation_of_the_same_rows) {
  train("run.toml");
  expect("eval out --quiet --predictions eval.predictions.csv", 0);
  expect("eval out --quiet --predictions eval.predictions.csv", 2, {"is there", "--force"});
  expect("predict out eval.csv --out predicted.csv --quiet", 0);
  const Table evaluated = table_of(read("eval.predictions.csv"));
  const Table predicted = table_of(read("predicted.csv"));
  EXPECT_EQ(evaluated[0], (std::vector<std::string>{"row", "target", "label", "score"}));
  ASSERT_EQ(evaluated.size(), predicted.size());
  double right = 0;
  for (size_t i = 1; i < evaluated.size(); ++i) {
    EXPECT_EQ(evaluated[i][0], std::to_string(i - 1));
    EXPECT_EQ(evaluated[i][1], predicted[i][0]);
    EXPECT_EQ(evaluated[i][2], predicted[i][3]);
    EXPECT_NEAR(std::stod(evaluated[i][3]), std::stod(predicted[i][4]), 1e-6);
    right += evaluated[i][1] == evaluated[i][2] ? 1 : 0;
  }
  EXPECT_NEAR(json("eval out")["evaluate.accuracy"],
              right / static_cast<double>(evaluated.size() - 1), 1e-9);
}

TEST_F(Predict, of_values_writes_values) {
  std::string rows = "label,a,b\n";
  for (int i = 0; i < 24; ++i) {
    rows += std::to_string(i) + ".5," + std::to_string(i) + ",0.5\n";
  }
  folder_.file("train.csv", rows);
  train("run.toml",
        " --set data.train.label_type=value --set data.eval.kind= --set data.eval.path= --set "
        "model.loss=mse --set evaluate.metrics=[]");
  folder_.file("new.csv", new_rows(6));
  expect("predict out new.csv --quiet", 0);
  const Table table = table_of(read("new.predictions.csv"));
  EXPECT_EQ(table[0], (std::vector<std::string>{"id", "b", "a", "value"}));
  std::set<std::string> values;
  for (size_t i = 1; i < table.size(); ++i) values.insert(table[i][3]);
  EXPECT_GT(values.size(), 3u);
}

TEST_F(Predict, of_images_names_each_file_and_its_class) {
  make_images();
  train("images.toml");
  expect("predict out eval --quiet", 0);
  const Table table = table_of(read("eval.predictions.csv"));
  ASSERT_EQ(table.size(), 7u);
  EXPECT_EQ(table[0], (std::vector<std::string>{"file", "label", "score"}));
  EXPECT_EQ(table[1][0], "cat/0.png");
  EXPECT_EQ(table[6][0], "dog/2.png");
  // The class names are the same as in the evaluation.
  expect("eval out --quiet --predictions evaluated.csv", 0);
  const Table evaluated = table_of(read("evaluated.csv"));
  for (size_t i = 1; i < table.size(); ++i) {
    EXPECT_TRUE(table[i][1] == "cat" || table[i][1] == "dog") << table[i][1];
    EXPECT_EQ(evaluated[i][1], table[i][0]);
    EXPECT_EQ(evaluated[i][2], table[i][0].substr(0, 3));
    EXPECT_EQ(evaluated[i][3], table[i][1]);
    EXPECT_NEAR(std::stod(evaluated[i][4]), std::stod(table[i][2]), 1e-6);
  }
  expect("predict out eval/dog/1.png --quiet --out one.csv", 0);
  EXPECT_EQ(table_of(read("one.csv"))[1][1], table[5][1]);
}

TEST_F(Predict, of_images_refuses_a_mixed_folder_and_a_damaged_file_unless_they_are_skipped) {
  make_images();
  train("images.toml");
  folder_.file("eval/notes.txt", "x");
  expect("predict out eval", 2,
         {"holds 1 file that is no image beside 6 images: notes.txt", "predict.broken"});
  folder_.file("eval/dog/1.png", "");
  fs::remove(at("eval/notes.txt"));
  expect("predict out eval", 2, {"[predict] eval/dog/1.png: "});
  folder_.file("eval/notes.txt", "x");
  expect("predict out eval --set predict.broken=skip", 0,
         {"7 rows (went on after row 4), 2 of them broken"});
  const Table table = table_of(read("eval.predictions.csv"));
  EXPECT_EQ(table[5], (std::vector<std::string>{"dog/1.png", "", ""}));
  EXPECT_EQ(table[7], (std::vector<std::string>{"notes.txt", "", ""}));
  EXPECT_NE(table[6][1], "");
}

TEST_F(Predict, of_texts_reads_lines_tables_and_standard_input_alike) {
  make_texts();
  train("texts.toml");
  folder_.file("new.txt", "a b\nc, c c c c c c c\nb c\n");
  folder_.file("new.csv", "n,text\n1,a b\n2,\"c, c c c c c c c\"\n3,b c\n");
  folder_.file("new.jsonl",
               "{\"text\": \"a b\", \"n\": [1]}\n{\"n\": null, \"text\": \"c, c c c c c c c\"}\n"
               "{\"text\": \"b c\"}\n");
  expect("predict out new.txt --quiet --out lines.jsonl", 0);
  expect("predict out new.csv --quiet --out table.jsonl", 0);
  expect("predict out new.jsonl --quiet --out json.jsonl", 0);
  const auto answers = [&](const std::string& name) {
    std::vector<std::string> all;
    std::istringstream lines(read(name));
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      all.push_back(row["text"].dump() + row["label"].dump() + row["score"].dump());
    }
    return all;
  };
  const auto expected = answers("lines.jsonl");
  ASSERT_EQ(expected.size(), 3u);
  EXPECT_EQ(answers("table.jsonl"), expected);
  EXPECT_EQ(answers("json.jsonl"), expected);
  EXPECT_EQ(read("json.jsonl").find("{\"text\":\"a b\",\"n\":[1],\"label\":"), 0u);
  const auto piped = shell(forked_tanren() + " predict out - <new.txt", folder_.path());
  EXPECT_EQ(piped.code, 0);
  expect("predict out new.txt --quiet", 0);
  EXPECT_EQ(piped.output, read("new.predictions.csv"));
  TANREN_EXPECT_CONTAINS(piped.output, "text,label,score\na b,");
  TANREN_EXPECT_CONTAINS(piped.output, "\"c, c c c c c c c\",");
}

TEST_F(Predict, of_texts_in_batches_of_any_size_gives_the_scores_of_each_text_alone) {
  make_texts();
  train("texts.toml");
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j <= i * 7 % 11; ++j) lines += "abc"[(i + j) % 3] + std::string(" ");
    lines += "a\n";
  }
  folder_.file("new.txt", lines);
  expect("predict out new.txt --quiet --set evaluate.batch=1 --out alone.csv", 0);
  expect("predict out new.txt --quiet --set evaluate.batch=16 --out together.csv", 0);
  const Table alone = table_of(read("alone.csv")), together = table_of(read("together.csv"));
  ASSERT_EQ(alone.size(), 41u);
  for (size_t i = 1; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i][0], together[i][0]);
    EXPECT_EQ(alone[i][1], together[i][1]);
    EXPECT_NEAR(std::stod(alone[i][2]), std::stod(together[i][2]), 1e-6);
  }
}

TEST_F(Predict, of_a_run_that_goes_on_takes_its_best_checkpoint_or_the_one_that_is_asked_for) {
  train("run.toml", " --set run.stop_after=4 --set checkpoint.every=2 --set run.steps=9");
  ASSERT_FALSE(exists("out/model.tanren.safetensors"));
  folder_.file("new.csv", new_rows(8));
  expect("predict out new.csv --quiet", 0);
  expect("predict out new.csv --quiet --out four.csv --set evaluate.checkpoint=step-4", 0);
  expect("predict out new.csv --quiet --out two.csv --set evaluate.checkpoint=step-2", 0);
  EXPECT_EQ(read("new.predictions.csv"), read("four.csv"));
  EXPECT_NE(read("two.csv"), read("four.csv"));
  expect("predict out new.csv --out x.csv --set evaluate.checkpoint=step-3", 2, {"step-3"});
}

TEST_F(Predict, refuses_averaged_weights_whose_batch_norm_statistics_nobody_has_measured) {
  make_images();
  train("images.toml",
        " --set model.norm=batch --set average.kind=ema --set average.buffers=estimate "
        "--set run.stop_after=2 --set checkpoint.every=2");
  expect("predict out eval", 2, {"need batch norm statistics of their own", "average.evaluate"});
  EXPECT_FALSE(exists("eval.predictions.csv.partial"));
  expect("predict out eval --set average.evaluate=false", 0,
         {"6 rows, by the weights of out/checkpoints/step-2"});
}

TEST_F(Predict, with_too_little_memory_is_refused_before_a_row_is_read) {
  train("run.toml", " --set model.hidden=[512,512]");
  folder_.file("new.csv", new_rows(8));
  expect("predict out new.csv --set memory.limit=1MB", 2, {"memory.limit"});
  EXPECT_FALSE(exists("new.predictions.csv"));
}

TEST_F(Predict, goes_on_after_a_full_disk_where_it_was) {
  train("run.toml");
  folder_.file("new.csv", new_rows(40000));
  expect("predict out new.csv --quiet --out whole.csv", 0);
  const auto full = shell(
      "ulimit -f 320; trap '' XFSZ; exec " + std::string(TANREN_BINARY) + " predict out new.csv",
      folder_.path());
  EXPECT_EQ(full.code, 2) << full.output;
  TANREN_EXPECT_CONTAINS(full.output, "[predict] cannot write new.predictions.csv.partial");
  TANREN_EXPECT_CONTAINS(full.output, "it goes on after row ");
  EXPECT_EQ(std::count(full.output.begin(), full.output.end(), '\n'), 1);
  EXPECT_FALSE(exists("new.predictions.csv"));
  expect("predict out new.csv", 0, {"new.predictions.csv: 40000 rows (went on after row "});
  EXPECT_EQ(read("new.predictions.csv"), read("whole.csv"));
}

TEST_F(Predict, refuses_to_go_on_from_other_rows_or_another_model) {
  train("run.toml");
  folder_.file("new.csv", new_rows(40000));
  const std::string stop =
      "ulimit -f 320; trap '' XFSZ; exec " + std::string(TANREN_BINARY) + " predict out new.csv";
  ASSERT_EQ(shell(stop, folder_.path()).code, 2);
  const std::string part = read("new.predictions.csv.partial");
  std::string other = new_rows(40000);
  other.replace(other.find("r1,"), 3, "x1,");
  folder_.file("new.csv", other);
  expect("predict out new.csv", 2, {"was begun from other rows than those of new.csv"});
  ASSERT_EQ(tanren("run run.toml --quiet --out other --set run.seed=9").code, 0);
  expect("predict other new.csv", 2, {"was begun with another model"});
  expect("predict out new.csv --set predict.scores=all", 2, {"was begun with other settings"});
  EXPECT_EQ(read("new.predictions.csv.partial"), part);
  expect("predict out new.csv --force --quiet", 0);
  TANREN_EXPECT_CONTAINS(read("new.predictions.csv"), "\nx1,");
}

TEST_F(Predict, killed_at_random_moments_and_gone_on_with_equals_what_was_not_killed) {
  train("run.toml");
  const std::string command = " predict out new.csv --set evaluate.batch=2 --set run.threads=1";
  const auto begin = [&](const std::string& options) {
    return Child(
        {"/bin/sh", "-c",
         "cd '" + folder_.path().string() + "' && exec " + TANREN_BINARY + command + options});
  };
  // As many rows as take two and a half times the second between two saves, at any speed.
  // Signals come after parts of that time.
  milliseconds whole_time{0};
  for (int rows = 60000; whole_time < milliseconds(2500) && rows < 4'000'000; rows *= 2) {
    folder_.file("new.csv", new_rows(rows));
    const auto begun = Child::Clock::now();
    Child child = begin(" --force --quiet --out whole.csv");
    ASSERT_EQ(child.ended(seconds(300)), 0) << child.text();
    whole_time = std::chrono::duration_cast<milliseconds>(Child::Clock::now() - begun);
  }
  const std::string expected = read("whole.csv");
  std::mt19937 random(7);
  const char* const asked = std::getenv("TANREN_KILLS");  // for scripts/soak
  const int wanted = asked != nullptr ? std::atoi(asked) : 1;
  int kills = 0, stops = 0, resumed = 0, files = 0, starts = 0;
  // The loop ends when a start that found saved rows has completed the file.
  while (kills < wanted || resumed == 0 || exists("new.predictions.csv.partial.json")) {
    ASSERT_LT(++starts, 60 * wanted + 10) << kills << " kills, " << resumed << " resumed";
    const bool has_rows = exists("new.predictions.csv.partial.json");
    Child child = begin("");
    const int signal = starts % 3 == 0 ? SIGINT : SIGKILL;
    int code = kills < wanted || resumed == 0
                   ? child.ended(whole_time * (30 + static_cast<int>(random() % 60)) / 100)
                   : child.ended(seconds(300));
    if (code == -1) {
      child.signal(signal);
      code = child.ended(seconds(60));
    }
    // The signal may come too late, and SIGINT before its handler is there.
    ASSERT_TRUE(code == 0 || code == 128 + signal || (signal == SIGINT && code == 130))
        << code << child.text();
    // A kill may also come after the file has its name.
    if (!exists("new.predictions.csv")) {
      (signal == SIGINT ? stops : kills) += 1;
      continue;
    }
    ++files;
    if (has_rows) ++resumed;
    EXPECT_EQ(read("new.predictions.csv"), expected);
    std::filesystem::remove(folder_.path() / "new.predictions.csv");
  }
  std::printf("%d kills and %d interrupts, %d whole files, %d of them resumed\n", kills, stops,
              files, resumed);
}

TEST_F(Predict, on_several_ranks_writes_the_bytes_of_one) {
  train("run.toml");
  folder_.file("new.csv", new_rows(700));
  expect("predict out new.csv --quiet --out one.csv --set run.threads=1", 0);
  for (const std::string ranks : {"2", "3"}) {
    expect("launch -n " + ranks + " predict out new.csv --quiet --out many" + ranks +
               ".csv --set run.threads=1",
           0);
    EXPECT_EQ(read("many" + ranks + ".csv"), read("one.csv"));
  }
  // Only one process can read a pipe.
  ASSERT_EQ(::mkfifo(at("pipe.csv").c_str(), 0600), 0);
  expect("launch -n 2 predict out pipe.csv", 2, {"pipe.csv can be read by one process only"});
  const std::string evaluated = "eval out --quiet --set run.threads=1 --predictions ";
  expect(evaluated + "one.jsonl", 0);
  expect("launch -n 2 " + evaluated + "two.jsonl", 0);
  EXPECT_EQ(lines_in("two.jsonl"), lines_in("one.jsonl"));
  TANREN_EXPECT_CONTAINS(read("two.jsonl"), "{\"row\":8,");
}

TEST_F(Predict,
       of_texts_on_several_ranks_writes_the_bytes_of_one_in_batches_that_nobody_asked_for) {
  make_texts();
  train("texts.toml", " --set batch.global_batch=4");
  std::string lines;
  for (int i = 0; i < 150; ++i) {
    for (int j = 0; j <= i * 7 % 11; ++j) lines += "abc"[(i + j) % 3] + std::string(" ");
    lines += "a\n";
  }
  folder_.file("new.txt", lines);
  expect("predict out new.txt --quiet --out one.csv --set run.threads=1", 0);
  for (const std::string ranks : {"2", "3"}) {
    expect("launch -n " + ranks + " predict out new.txt --quiet --out many" + ranks +
               ".csv --set run.threads=1",
           0);
    EXPECT_EQ(read("many" + ranks + ".csv"), read("one.csv"));
  }
}

}  // namespace
}  // namespace tanren::testing
