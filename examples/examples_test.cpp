// Runs every example with the commands of its README, shortened by ci.toml, in a temporary folder;
// own_test.cpp has those of own code.
#include "examples/examples_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace tanren::testing {
namespace {

class Examples : public ExamplesTest {};

TEST_F(Examples, edges2digits_train_on_one_rank_and_on_two_and_write_pictures) {
  const auto drawn =
      go(TANREN_BUILD_DIR "/digits_to_pairs " + (kExamples / "digits").string() + " pairs");
  ASSERT_EQ(drawn.code, 0) << drawn.output;
  TANREN_EXPECT_CONTAINS(drawn.output, "1438 pairs in pairs/train, 359 in pairs/held");
  for (int i = 40; i < 359; ++i) {  // 40 are evaluated, in batches of 32
    for (const char* side : {"inputs", "targets"}) {
      const std::string name = std::to_string(100000 + i).substr(1) + ".png";
      ASSERT_TRUE(fs::remove(temporary_.path() / "pairs/held" / side / name)) << name;
    }
  }
  const std::string data = " --set data.train.path=pairs/train --set data.eval.path=pairs/held" +
                           ci_options(kExamples / "edges2digits/ci.toml");
  for (const std::string name : {"generator", "gan"}) {
    const std::string file = (kExamples / "edges2digits" / (name + ".toml")).string();
    const auto one = go(kTanren + " run " + file + " --out " + name + data);
    ASSERT_EQ(one.code, 0) << one.output;
    EXPECT_TRUE(fs::exists(temporary_.path() / name / "images"));
    const auto two = go(kTanren + " launch -n 2 -- " + kTanren + " run " + file + " --out " + name +
                        "_ranks" + data);
    ASSERT_EQ(two.code, 0) << two.output;
  }
  const auto written = go(kTanren + " eval gan --out outputs");
  ASSERT_EQ(written.code, 0) << written.output;
}

TEST_F(Examples, quantize_writes_a_smaller_model_that_is_evaluated) {
  const fs::path folder = kExamples / "quantize";
  const auto trained = go(kTanren + " run " + (folder / "run.toml").string() +
                          ci_options(folder / "ci.toml") + " --quiet --out run");
  ASSERT_EQ(trained.code, 0) << trained.output;
  // quantize also compares times. The tolerance is wide, so that some scheme is written.
  const auto quantised = go(kTanren + " quantize run --set quantize.tolerance=5");
  ASSERT_EQ(quantised.code, 0) << quantised.output;
  const auto json =
      nlohmann::json::parse(read_file(temporary_.path() / "run" / "quantized" / "quantize.json"));
  EXPECT_NE(json["written"], "");
  const auto plain = fs::file_size(temporary_.path() / "run" / "model.tanren.safetensors");
  const fs::path small = temporary_.path() / "run" / "quantized" / "model.tanren.safetensors";
  EXPECT_LT(fs::file_size(small), plain / 2);
  const auto evaluated =
      go(kTanren + " eval " + small.string() + " " + (kExamples / "digits/eval.csv").string());
  EXPECT_EQ(evaluated.code, 0) << evaluated.output;
  const auto kept = go(kTanren +
                       " quantize run --out static --set quantize.scheme=static"
                       " --set 'quantize.keep=[\"head.*\"]' --set quantize.tolerance=5");
  ASSERT_EQ(kept.code, 0) << kept.output;
  TANREN_EXPECT_CONTAINS(read_file(temporary_.path() / "static" / "quantize.txt"), "head.weight");
}

TEST_F(Examples, model_parallel_trains_a_resnet_in_two_stages_and_a_gpt_in_four) {
  const fs::path folder = kExamples / "model_parallel";
  const std::string ci = ci_options(folder / "ci.toml");
  const std::string resnet = (folder / "resnet50.toml").string() + ci +
                             " --set batch.microbatch=2 --set data.train.samples=8" +
                             " --set 'data.train.fields=[\"inputs: float[3,32,32] in [-1, 1]\","
                             " \"labels: int[] in [0, 999]\"]'";
  const auto planned = go(kTanren + " plan " + resnet);
  ASSERT_EQ(planned.code, 0) << planned.output;
  TANREN_EXPECT_CONTAINS(planned.output, "conv1 to layer2.3");
  TANREN_EXPECT_CONTAINS(planned.output, "layer3.0 to fc");
  const auto two = go(kTanren + " run " + resnet + " --out resnet");
  ASSERT_EQ(two.code, 0) << two.output;
  TANREN_EXPECT_CONTAINS(read_file(temporary_.path() / "resnet" / "log.jsonl"), "\"bubble\":");
  const auto four = go(kTanren + " launch -n 4 -- " + kTanren + " run " +
                       (folder / "gpt2_four_stages.toml").string() + ci +
                       " --out gpt --set model.hidden_size=64 --set data.train.include=[string.py]"
                       " --set data.train.part=[0.0,1.0] --set data.eval.include=[string.py]"
                       " --set data.eval.part=[0.0,1.0]");
  ASSERT_EQ(four.code, 0) << four.output;
  TANREN_EXPECT_CONTAINS(four.output, "stage 4 of 4");
  const auto summary = nlohmann::json::parse(read_file(temporary_.path() / "gpt" / "summary.json"));
  EXPECT_EQ(summary["status"], "finished");
}

TEST_F(Examples, anatomy_refuses_the_folder_of_a_run_and_data_that_is_not_there) {
  const std::string line = kTanren + " anatomy " + (kExamples / "anatomy/ci.toml").string();
  fs::create_directories(temporary_.path() / "run/checkpoints");
  const auto taken = go(line + " --out run");
  EXPECT_EQ(taken.code, 2);
  EXPECT_EQ(taken.output, "[anatomy] run is the folder of a run; name another one with --out\n");
  EXPECT_EQ(go(line + " --out report --set data.train.kind=csv").code, 2);
  EXPECT_FALSE(fs::exists(temporary_.path() / "report/report.html"));
}

TEST_F(Examples, anatomy_of_a_small_bert_adds_up) {
  // Fewer words, so that the blocks weigh more than the embedding.
  const auto result =
      go(kTanren + " anatomy " + (kExamples / "anatomy/ci.toml").string() +
         " --out report --json --set memory.limit=16GiB --set model.vocab_size=1000 --set "
         "'data.train.fields=[\"inputs: int[64] in [100, 900]\", \"labels: int[] in [0, 1]\"]'");
  ASSERT_EQ(result.code, 0) << result.output;
  const fs::path folder = temporary_.path() / "report";
  const auto json = nlohmann::json::parse(read_file(folder / "anatomy.json"));
  EXPECT_FALSE(fs::exists(temporary_.path() / "runs"));
  double seconds = 0, share = 0;
  for (const auto& row : json["operations"]["classes"]) {
    seconds += row["seconds"].get<double>();
    share += row["share"].get<double>();
  }
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_GE(seconds, 0.99 * json["step"]["seconds"].get<double>());
  // A product has two gradients, and the backward of attention recomputes its scores.
  double forward = 0, backward = 0;
  for (const auto& one : json["operations"]["operators"]) {
    if (one["class"] != "tensor contractions") continue;
    (one["pass"] == "forward" ? forward : backward) += one["flops"].get<double>();
  }
  EXPECT_GT(forward, 3 * 2.0 * 4 * 64 * 128 * (4 * 128 + 2 * 512)) << "two blocks and their heads";
  EXPECT_NEAR(backward / forward, 2, 0.1);
  const auto& memory = json["memory"];
  const double parameters = json["subject"]["parameters"].get<double>();
  EXPECT_EQ(memory["at_peak"]["weights"].get<double>(), 4 * parameters);
  EXPECT_NEAR(memory["at_peak"]["optimizer"].get<double>(), 8 * parameters, 0.01 * parameters);
  const double predicted = memory["predicted"]["peak_bytes"].get<double>();
  EXPECT_NEAR(predicted, memory["peak_bytes"].get<double>(), 0.01 * predicted);
  std::set<std::string> blocks;
  for (const auto& block : json["operations"]["blocks"]) blocks.insert(block["name"]);
  EXPECT_GE(blocks.size(), 3u);
  // Every applicable variant was run; advice is sorted by measured gain, the largest first.
  const auto tried = json["tried"].get<std::set<std::string>>();
  for (const char* variant : {"precision.mode = \"bf16\"", "batch.microbatch = 2",
                              "memory.recompute = [\"*\"]", "optimizer.state = \"8bit\""}) {
    EXPECT_EQ(tried.count(variant), 1u) << variant;
  }
  double last = 1;
  bool saves_state = false;
  for (const auto& advice : json["advice"]) {
    EXPECT_EQ(tried.count(advice["change"]), 1u);
    const double saved = advice["bytes_saved"].get<double>() / memory["peak_bytes"].get<double>();
    const double gain = std::max(advice["time_gain"].get<double>(), saved);
    EXPECT_GT(gain, 0.03);
    EXPECT_LE(gain, last);
    last = gain;
    saves_state = saves_state || (advice["change"] == "optimizer.state = \"8bit\"" &&
                                  advice["peak_measured"] == true);
  }
  EXPECT_TRUE(saves_state) << "two layers' moments in a quarter of the bytes are measurably less";
  TANREN_EXPECT_CONTAINS(read_file(folder / "anatomy.txt"), "OPERATIONS");
  TANREN_EXPECT_CONTAINS(read_file(folder / "report.html"), "memory-plot");
}

TEST_F(Examples, anatomy_trains_as_any_other_run) {
  const auto result =
      go(kTanren + " run " + (kExamples / "anatomy/ci.toml").string() + " --quiet --out run");
  ASSERT_EQ(result.code, 0) << result.output;
  const auto summary = nlohmann::json::parse(read_file(temporary_.path() / "run" / "summary.json"));
  EXPECT_EQ(summary["steps"], 8);
  const auto plan = go(kTanren + " plan " + (kExamples / "anatomy/run.toml").string());
  EXPECT_EQ(plan.code, 0) << plan.output;
  TANREN_EXPECT_CONTAINS(plan.output, "128");
}

TEST_F(Examples, sweep_searches_with_the_file_that_run_trains_as_it_stands) {
  const fs::path folder = kExamples / "sweep";
  const auto swept = go(kTanren + " sweep " + (folder / "digits.toml").string() +
                        ci_options(folder / "ci.toml") + " --out s");
  ASSERT_EQ(swept.code, 0) << swept.output;
  const auto board = nlohmann::json::parse(read_file(temporary_.path() / "s/leaderboard.json"));
  EXPECT_EQ(board["trials"].size(), 6u);
  EXPECT_EQ(board["trials"][0]["state"], "finished");
  const auto evaluated = go(kTanren + " eval s/best --json");
  ASSERT_EQ(evaluated.code, 0) << evaluated.output;
  EXPECT_EQ(nlohmann::json::parse(evaluated.output)["evaluate.loss"], board["trials"][0]["value"]);
  EXPECT_TRUE(trained(kTanren, "sweep/digits.toml").is_object());
}

TEST_F(Examples, digits_trains_with_group_norm) {
  const auto summary = trained(kTanren, "digits/run.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.5);
}

TEST_F(Examples, table_learns_names_from_columns_of_any_unit_and_predicts_them) {
  const auto summary = trained(kTanren, "table/run.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.9);
  const std::string wines = (kExamples / "table/eval.csv").string();
  const auto predicted = go(kTanren + " predict run " + wines + " --quiet --out answers.csv");
  ASSERT_EQ(predicted.code, 0) << predicted.output;
  std::istringstream rows(read_file(temporary_.path() / "answers.csv"));
  std::string row;
  std::getline(rows, row);
  TANREN_EXPECT_CONTAINS(row, "proline,cultivar,label,score");
  int right = 0, all = 0;
  static const std::regex alike(",(class_[0-2]),\\1,");
  for (; std::getline(rows, row); ++all) right += std::regex_search(row, alike) ? 1 : 0;
  ASSERT_EQ(all, 36);
  EXPECT_NEAR(static_cast<double>(right) / all, summary["evaluate.accuracy"].get<double>(), 1e-9);
}

// Uses TorchScript, because a package needs a C++ compiler and is for one kind of processor.
TEST_F(Examples, python_model_trains_without_python_and_goes_back_to_it) {
  fs::copy_file(kExamples / "python_model/net.pt", temporary_.path() / "net.pt");
  const auto summary = trained(kTanren, "python_model/run.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.2) << "knows nothing of the digits";
  const auto evaluated = go(kTanren + " eval run --set model.path=net.pt --json");
  ASSERT_EQ(evaluated.code, 0) << evaluated.output;
  EXPECT_EQ(nlohmann::json::parse(evaluated.output)["evaluate.accuracy"],
            summary["evaluate.accuracy"]);
  const auto converted = go(kTanren + " convert run mixer");
  ASSERT_EQ(converted.code, 0) << converted.output;
  EXPECT_TRUE(fs::exists(temporary_.path() / "mixer/model.pth"));
}

TEST_F(Examples, text_learns_from_the_sources_on_this_machine_and_goes_on_from_a_prompt) {
  const auto summary = trained(kTanren, "text/run.toml");
  ASSERT_TRUE(summary.is_object());
  const double loss = summary["evaluate.loss"].get<double>();
  EXPECT_LT(loss, 0.9 * std::log(256)) << "knows nothing of the text";
  EXPECT_NEAR(summary["evaluate.perplexity"].get<double>(), std::exp(loss), 1e-6 * std::exp(loss));
  EXPECT_GT(summary["tokens_per_second"].get<double>(), 0);
  const auto again = go(kTanren + " eval run --json");
  ASSERT_EQ(again.code, 0) << again.output;
  const auto json = nlohmann::json::parse(again.output);
  EXPECT_EQ(json["evaluate.loss"], summary["evaluate.loss"]);
  const auto sample = json["sample"].get<std::string>();
  EXPECT_EQ(sample.substr(0, 4), "def ");
  EXPECT_GT(sample.size(), 100u);
  EXPECT_EQ(nlohmann::json::parse(go(kTanren + " eval run --json").output)["sample"], sample);
}

TEST_F(Examples, text_of_a_tokenizer_is_measured_in_bytes_and_goes_on_in_text) {
  const auto result =
      go(kTanren + " run " + (kExamples / "text/bpe.toml").string() + " --out run" +
         ci_options(kExamples / "text/ci.toml") + " --set 'data.train.include=[\"s*.py\"]'");
  ASSERT_EQ(result.code, 0) << result.output;
  const auto summary = nlohmann::json::parse(read_file(temporary_.path() / "run" / "summary.json"));
  const double bits = summary["evaluate.bits_per_byte"].get<double>();
  EXPECT_LT(bits, summary["evaluate.loss"].get<double>() / std::log(2.0))
      << "a token is more than a byte";
  EXPECT_LT(bits, 8);
  const auto text = go(kTanren + " generate run --prompt 'def ' --set generate.tokens=20");
  ASSERT_EQ(text.code, 0) << text.output;
  EXPECT_EQ(text.output.substr(0, 4), "def ");
  EXPECT_GT(text.output.size(), 10u);
}

TEST_F(Examples, pretrained_takes_a_folder_with_its_tokenizer_and_outlives_it) {
  // A tiny model and a few sentences replace the files that `fetch` writes.
  const fs::path film = temporary_.path() / "build/film", example = "examples/pretrained";
  fs::create_directories(film);
  fs::create_directories(temporary_.path() / example);
  fs::copy(fs::path(TANREN_SOURCE_DIR) / "tests/fixtures/hf/bert", film / "minilm");
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", rows = "label\ttext\n";
  for (char c = 'a'; c < 'a' + 18; ++c) vocabulary += std::string(1, c) + "\n";
  for (int i = 0; i < 16; ++i) rows += i % 2 == 0 ? "positive\ta b c\n" : "negative\td e f\n";
  temporary_.file("build/film/minilm/vocab.txt", vocabulary);
  temporary_.file("build/film/train.tsv", rows);
  temporary_.file("build/film/eval.tsv", rows);
  for (const char* config : {"run.toml", "scratch.toml"}) {
    fs::copy_file(kExamples / "pretrained" / config, temporary_.path() / example / config);
  }
  const std::string small =
      " --set data.train.context=8 --set data.eval.context=8 --set run.threads=1";
  EXPECT_EQ(go(kTanren + " plan examples/pretrained/scratch.toml" + small).code, 0);
  const auto result = go(kTanren + " run examples/pretrained/run.toml --out run" + small +
                         " --set model.init_skip=[classifier.*] --set batch.global_batch=4");
  ASSERT_EQ(result.code, 0) << result.output;
  fs::remove_all(film / "minilm");
  EXPECT_EQ(go(kTanren + " run run --set run.epochs=2").code, 0);
  const auto evaluated = go(kTanren + " eval run --json");
  ASSERT_EQ(evaluated.code, 0) << evaluated.output;
  EXPECT_EQ(nlohmann::json::parse(evaluated.output)["step"], 8);
}

TEST_F(Examples, text_classify_leaves_a_whole_model_that_needs_no_config) {
  const std::string make = (kExamples / "text_classify/make_data").string();
  ASSERT_EQ(go(make + " build/licences").code, 0);
  fs::create_directories(temporary_.path() / "examples/text_classify");
  fs::copy_file(kExamples / "text_classify/run.toml",
                temporary_.path() / "examples/text_classify/run.toml");
  const auto result = go(kTanren + " run examples/text_classify/run.toml --out run" +
                         ci_options(kExamples / "text_classify/ci.toml"));
  ASSERT_EQ(result.code, 0) << result.output;
  const auto summary = nlohmann::json::parse(read_file(temporary_.path() / "run/summary.json"));
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.4) << "the largest class has a third";
  // In another folder, with only that file and new texts.
  fs::create_directories(temporary_.path() / "elsewhere");
  fs::rename(temporary_.path() / "run/model.tanren.safetensors",
             temporary_.path() / "elsewhere/model.safetensors");
  fs::rename(temporary_.path() / "build/licences/eval.jsonl",
             temporary_.path() / "elsewhere/new.jsonl");
  fs::remove_all(temporary_.path() / "build");
  fs::remove_all(temporary_.path() / "run");
  const auto again =
      go("cd elsewhere && " + kTanren + " eval model.safetensors new.jsonl --json 2> notes");
  ASSERT_EQ(again.code, 0) << again.output;
  const auto json = nlohmann::json::parse(again.output);
  for (const char* key : {"evaluate.loss", "evaluate.accuracy", "evaluate.f1_macro"}) {
    EXPECT_EQ(json[key], summary[key]) << key;
  }
  // The program of examples/predict prints the same classes as the verb.
  temporary_.file("lines", "License\na copy of the Program either verbatim or modified\n");
  const auto said = go(TANREN_BUILD_DIR "/predict_lines elsewhere/model.safetensors < lines");
  ASSERT_EQ(said.code, 0) << said.output;
  const auto table = go(kTanren +
                        " predict elsewhere/model.safetensors lines --quiet --out l.csv "
                        "--set precision.mode=fp32");
  ASSERT_EQ(table.code, 0) << table.output;
  std::istringstream rows(read_file(temporary_.path() / "l.csv")), answers(said.output);
  std::string row, name;
  double score = 0;
  std::getline(rows, row);  // the header
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(std::getline(rows, row) && answers >> name >> score);
    TANREN_EXPECT_CONTAINS(row, "," + name + ",");
    EXPECT_NEAR(std::stod(row.substr(row.rfind(',') + 1)), score, 1e-5);
  }
  EXPECT_EQ(go(TANREN_BUILD_DIR "/predict_lines absent < lines").code, 2);
  const std::string program = read_file(kExamples / "predict/main.cpp");
  EXPECT_LE(std::count(program.begin(), program.end(), '\n'), 30);
  const auto folder = go(kTanren + " convert elsewhere/model.safetensors python");
  ASSERT_EQ(folder.code, 0) << folder.output;
  TANREN_EXPECT_CONTAINS(folder.output, "BertForSequenceClassification.from_pretrained");
  EXPECT_TRUE(fs::exists(temporary_.path() / "python/vocab.txt"));
  const auto refused = go(kTanren + " eval python/model.safetensors elsewhere/new.jsonl");
  EXPECT_EQ(refused.code, 2);
  TANREN_EXPECT_CONTAINS(refused.output, "no description of a model");
}

TEST_F(Examples, images_trains_on_a_folder_of_pngs_and_evaluates_its_checkpoint) {
  const auto made =
      go(TANREN_BUILD_DIR "/digits_to_png " + (kExamples / "digits").string() + " png");
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_EQ(made.output, "1438 images in png/train, 359 in png/held\n");
  const std::string folders =
      " --set data.train.path=" + (temporary_.path() / "png/train").string() +
      " --set data.eval.path=" + (temporary_.path() / "png/held").string();
  const auto config = kExamples / "images/digits.toml";
  const auto plan = go(kTanren + " plan " + config.string() + folders);
  TANREN_EXPECT_CONTAINS(plan.output, "from 0: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
  const auto result = go(kTanren + " run " + config.string() + " --out run" + folders +
                         ci_options(kExamples / "images/ci.toml"));
  ASSERT_EQ(result.code, 0) << result.output;
  const auto summary = nlohmann::json::parse(read_file(temporary_.path() / "run" / "summary.json"));
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.5);
  const auto again = go(kTanren + " eval run --json");
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(nlohmann::json::parse(again.output)["evaluate.accuracy"], summary["evaluate.accuracy"]);
}

TEST_F(Examples, images_stopped_and_gone_on_equals_a_run_that_was_not_stopped) {
  ASSERT_EQ(go(TANREN_BUILD_DIR "/digits_to_png " + (kExamples / "digits").string() + " png").code,
            0);
  const std::string line = kTanren + " run " + (kExamples / "images/digits.toml").string() +
                           " --set data.train.path=" + (temporary_.path() / "png/train").string() +
                           " --set data.eval.path=" + (temporary_.path() / "png/held").string() +
                           " --set run.epochs=none --set run.steps=60 --set run.threads=1" +
                           " --set data.train.flip=0.5 --set model.channels=[4]";
  const auto whole = go(line + " --out whole");
  ASSERT_EQ(whole.code, 0) << whole.output;
  ASSERT_EQ(go(line + " --out parts --set run.stop_after=25 --set data.workers=0").code, 0);
  const auto second = go(line + " --out parts --set data.workers=3");
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_EQ(read_file(temporary_.path() / "whole/checkpoints/step-60/model.safetensors"),
            read_file(temporary_.path() / "parts/checkpoints/step-60/model.safetensors"));
}

// Bytes of each tensor of a safetensors file.
std::map<std::string, std::string> tensor_bytes(const fs::path& file) {
  const std::string bytes = read_file(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto json = nlohmann::json::parse(bytes.substr(8, header));
  std::map<std::string, std::string> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry["data_offsets"][0].get<size_t>();
    const auto end = entry["data_offsets"][1].get<size_t>();
    tensors[name] = bytes.substr(8 + header + begin, end - begin);
  }
  return tensors;
}

TEST_F(Examples, transfer_learns_other_digits_on_a_body_that_keeps_every_byte) {
  const auto both = go("sh " + (kExamples / "transfer/run.sh").string() + " " + kTanren +
                       " runs --set run.threads=1 --set run.epochs=20"
                       " --set optimizer.learning_rate=0.1 --set model.dropout=0");
  ASSERT_EQ(both.code, 0) << both.output;
  const auto runs = temporary_.path() / "runs";
  const std::string plan = read_file(runs / "transfer_head/plan.txt");
  TANREN_EXPECT_CONTAINS(plan, "newly initialised: head.weight, head.bias");
  TANREN_EXPECT_CONTAINS(plan, "16 tensors, 829376 parameters of 830661 without gradient");
  const auto summary = nlohmann::json::parse(read_file(runs / "transfer_head/summary.json"));
  EXPECT_GE(summary["evaluate.accuracy"].get<double>(), 0.95);
  const auto before = tensor_bytes(runs / "transfer_base/model.safetensors");
  const auto after = tensor_bytes(runs / "transfer_head/model.safetensors");
  ASSERT_EQ(before.size(), after.size());
  size_t heads = 0;
  for (const auto& [name, bytes] : before) {
    const bool is_head = name.rfind("head.", 0) == 0;
    heads += is_head ? 1 : 0;
    EXPECT_EQ(bytes == after.at(name), !is_head) << name;
  }
  EXPECT_EQ(heads, 2u);
  const auto again = go(kTanren + " eval runs/transfer_head --json");
  EXPECT_EQ(nlohmann::json::parse(again.output)["evaluate.accuracy"], summary["evaluate.accuracy"]);
}

TEST_F(Examples, transfer_stopped_in_the_middle_equals_a_run_that_was_not_stopped) {
  const auto config = [&](const char* name) { return (kExamples / "transfer" / name).string(); };
  const std::string common =
      " --quiet --set run.threads=1 --set 'model.channels=[16,32]' --set run.epochs=none"
      " --set run.steps=";
  ASSERT_EQ(go(kTanren + " run " + config("base.toml") + " --out base" + common + "30").code, 0);
  const std::string line = kTanren + " run " + config("head.toml") + common + "40" +
                           " --set model.init_from=" + (temporary_.path() / "base").string() +
                           " --set 'model.unfreeze=[{parameters = [\"stages.*\"], step = 20}]'";
  ASSERT_EQ(go(line + " --out whole").code, 0);
  for (const std::string step : {"12", "20", "31"}) {
    ASSERT_EQ(go(line + " --out parts-" + step + " --set run.stop_after=" + step).code, 0);
    fs::rename(temporary_.path() / "base", temporary_.path() / "gone");  // it is not read again
    const auto second = go(line + " --out parts-" + step);
    fs::rename(temporary_.path() / "gone", temporary_.path() / "base");
    ASSERT_EQ(second.code, 0) << second.output;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(temporary_.path() / "whole/checkpoints/step-40" / file),
                read_file(temporary_.path() / ("parts-" + step) / "checkpoints/step-40" / file))
          << step << " " << file;
    }
  }
}

TEST_F(Examples, digits_trains_with_batch_norm) {
  const auto summary = trained(kTanren, "digits/batch_norm.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.5);
}

}  // namespace
}  // namespace tanren::testing
