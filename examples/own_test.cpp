// Runs the examples of own models, data, sinks and loops with the commands of their READMEs,
// shortened by ci.toml, in a temporary folder.
#include "examples/examples_test.h"

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

namespace tanren::testing {
namespace {

const std::string kOwnModel = TANREN_BUILD_DIR "/own_model";
const std::string kOwnBinary = TANREN_BUILD_DIR "/own_binary";
const std::string kOwnDataset = TANREN_BUILD_DIR "/own_dataset";
const std::string kOwnGan = TANREN_BUILD_DIR "/own_gan";
const std::string kOwnSearch = TANREN_BUILD_DIR "/own_search";
const std::string kOwnSink = TANREN_BUILD_DIR "/own_sink";
const std::string kOwnLoopParallel = TANREN_BUILD_DIR "/own_loop_parallel";
const std::string kOwnLoop = "OMP_NUM_THREADS=1 " TANREN_BUILD_DIR "/own_loop";

class OwnExamples : public ExamplesTest {};

TEST_F(OwnExamples, own_model_refuses_a_wrong_option_in_one_line) {
  const auto result = go(kOwnModel + " plan " + (kExamples / "own_model/run.toml").string() +
                         " --set model.options.width=wide");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output, "[row_mixer] width is wide; give a number of 1 or more\n");
}

TEST_F(OwnExamples, own_model_is_unknown_to_the_plain_program) {
  const auto result = go(kTanren + " plan " + (kExamples / "own_model/run.toml").string());
  EXPECT_EQ(result.code, 2);
  TANREN_EXPECT_CONTAINS(result.output, "row_mixer");
}

TEST_F(OwnExamples, own_model_trains_from_its_config_and_evaluates_its_checkpoint) {
  const auto summary = trained(kOwnModel, "own_model/run.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_EQ(summary["status"], "finished");
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.7);
  const auto again = go(kOwnModel + " eval run --json");
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(nlohmann::json::parse(again.output)["evaluate.accuracy"], summary["evaluate.accuracy"]);
}

TEST_F(OwnExamples, own_model_takes_fewer_than_60_lines) {
  const std::string text = read_file(kExamples / "own_model/main.cpp");
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60);
}

TEST_F(OwnExamples, own_gan_trains_two_phases_in_turns_on_one_rank_and_on_two) {
  const auto summary = trained(kOwnGan, "own_gan/run.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_EQ(summary["status"], "finished");
  const auto two = go(kTanren + " launch -n 2 -- " + kOwnGan + " run " +
                      (kExamples / "own_gan/run.toml").string() + " --out ranks" +
                      ci_options(kExamples / "own_gan/ci.toml"));
  ASSERT_EQ(two.code, 0) << two.output;
  const auto ranks = nlohmann::json::parse(read_file(temporary_.path() / "ranks" / "summary.json"));
  EXPECT_NEAR(ranks["final_loss"].get<double>(), summary["final_loss"].get<double>(), 1e-3);
  const std::string log = read_file(temporary_.path() / "run" / "log.jsonl");
  const std::string first = log.substr(0, log.find('\n'));
  EXPECT_EQ(first.find("generator"), std::string::npos) << first;  // its turn is the second batch
  TANREN_EXPECT_CONTAINS(log.substr(first.size()), "generator");
}

TEST_F(OwnExamples, own_gan_takes_fewer_than_100_lines) {
  const std::string text = read_file(kExamples / "own_gan/main.cpp");
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 100);
}

TEST_F(OwnExamples, own_binary_refuses_data_that_its_model_cannot_take) {
  const auto result = go(kOwnBinary + " plan " + (kExamples / "own_binary/run.toml").string() +
                         " --set data.train.shape=[64] --set data.eval.shape=[64]");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output, "[lenet] wants images of 8 × 8 or more; set data.train.shape\n");
}

TEST_F(OwnExamples, own_binary_has_every_verb_with_its_model) {
  const auto summary = trained(kOwnBinary, "own_binary/run.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.8);
  const std::string config = (kExamples / "own_binary/run.toml").string();
  const auto says = [&](const std::string& arguments, const std::string& part) {
    const auto result = go(kOwnBinary + " " + arguments);
    EXPECT_EQ(result.code, 0) << arguments << "\n" << result.output;
    TANREN_EXPECT_CONTAINS(result.output, part);
  };
  says("eval run", "359 samples");
  says("plan " + config, "total_steps");
  says("summary " + config, "fc1      Linear");
  says("run run --quiet --set run.epochs=5", "");
  says("convert run/checkpoints/step-225 lenet.pt", "lenet.pt");
  says("completion bash", "complete -o default -F _own_binary own_binary");
  says("completion bash", " lenet ");
  says("help clip.norm", "clip.norm");
  says("doctor", "libtorch");
  says("--help", "own_binary [OPTIONS]");
}

TEST_F(OwnExamples, own_binary_has_a_main_of_three_lines) {
  const std::string text = read_file(kExamples / "own_binary/main.cpp");
  const std::string body = text.substr(text.find("{\n") + 2);
  EXPECT_EQ(std::count(body.begin(), body.end(), '\n'), 4) << body;  // + the closing bracket
}

TEST_F(OwnExamples, own_dataset_refuses_wrong_keys_and_is_unknown_to_the_plain_program) {
  const std::string config = (kExamples / "own_dataset/run.toml").string();
  const auto result = go(kOwnDataset + " plan " + config + " --set data.train.classes=1");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output, "[spirals] data.train.classes is 1; give 2 or more\n");
  const auto none = go(kOwnDataset + " plan " + config + " --set data.eval.samples=0");
  EXPECT_EQ(none.code, 2);
  TANREN_EXPECT_CONTAINS(none.output, "[data.eval] kind 'spirals' gave no samples");
  const auto plain = go(kTanren + " plan " + config);
  EXPECT_EQ(plain.code, 2);
  TANREN_EXPECT_CONTAINS(plain.output, "data.train.kind \"spirals\" is unknown");
}

TEST_F(OwnExamples, own_dataset_trains_from_its_config_and_goes_on_bitwise) {
  const auto summary = trained(kOwnDataset, "own_dataset/run.toml");
  ASSERT_TRUE(summary.is_object());
  EXPECT_GT(summary["evaluate.accuracy"].get<double>(), 0.9);
  const std::string line = kOwnDataset + " run " + (kExamples / "own_dataset/run.toml").string() +
                           ci_options(kExamples / "own_dataset/ci.toml") + " --quiet --out parts";
  ASSERT_EQ(go(line + " --set run.stop_after=70").code, 0);
  ASSERT_EQ(go(line + " --set data.workers=3").code, 0);
  EXPECT_EQ(read_file(temporary_.path() / "run/checkpoints/step-940/model.safetensors"),
            read_file(temporary_.path() / "parts/checkpoints/step-940/model.safetensors"));
  TANREN_EXPECT_CONTAINS(go(kOwnDataset + " completion bash").output, "tokens spirals'");
}

// "step 20 loss 1.25", …
std::map<int, double> losses_of(const std::string& output) {
  std::map<int, double> losses;
  static const std::regex line("step ([0-9]+) loss ([0-9.e+-]+)\n");
  for (std::sregex_iterator found(output.begin(), output.end(), line), end; found != end; ++found) {
    losses[std::stoi((*found)[1])] = std::stod((*found)[2]);
  }
  return losses;
}

// Both have the same microbatches, so fp16 rounds equally. fp32 sums them in another order, and 120
// updates amplify that difference.
TEST_F(OwnExamples, own_loop_parallel_prints_the_losses_of_one_rank_on_two) {
  const std::string data = " " + (kExamples / "digits/train.csv").string();
  const auto one = go("OMP_NUM_THREADS=1 " + kOwnLoopParallel + data);
  const auto two =
      go("OMP_NUM_THREADS=1 " + kTanren + " launch -n 2 -- " + kOwnLoopParallel + data);
  ASSERT_EQ(one.code, 0) << one.output;
  ASSERT_EQ(two.code, 0) << two.output;
  TANREN_EXPECT_CONTAINS(one.output, "the weights of 1 ranks are equal\n");
  TANREN_EXPECT_CONTAINS(two.output, "the weights of 2 ranks are equal\n");
  const auto expected = losses_of(one.output), got = losses_of(two.output);
  ASSERT_EQ(expected.size(), 6U) << one.output;
  ASSERT_EQ(got.size(), 6U) << two.output;
  for (const auto& [step, loss] : expected) EXPECT_NEAR(got.at(step), loss, 2e-3 * loss) << step;
  EXPECT_LT(expected.at(120), 0.5 * expected.at(20));
}

TEST_F(OwnExamples, own_loop_parallel_ends_on_both_ranks_where_one_cannot_read) {
  const auto result = go(kTanren + " launch -n 2 -- " + kOwnLoopParallel + " none.csv");
  EXPECT_EQ(result.code, 1);
  TANREN_EXPECT_CONTAINS(result.output, "none.csv");
}

TEST_F(OwnExamples, own_search_finds_a_good_throw_and_goes_on_after_its_end_at_any_line) {
  EXPECT_EQ(go(kOwnSearch + " absent/search.jsonl").code, 2);
  const auto whole = go(kOwnSearch + " search.jsonl");
  ASSERT_EQ(whole.code, 0) << whole.output;
  TANREN_EXPECT_CONTAINS(whole.output, "TRIALS BY METRES\n");
  TANREN_EXPECT_CONTAINS(whole.output, "50 finished; 45 more rows\n");
  const std::string journal = read_file(temporary_.path() / "search.jsonl");
  temporary_.file("search.jsonl", journal.substr(0, journal.size() / 3));
  EXPECT_EQ(go(kOwnSearch + " search.jsonl").output, whole.output);
  EXPECT_EQ(read_file(temporary_.path() / "search.jsonl"), journal);
}

TEST_F(OwnExamples, own_search_takes_fewer_than_50_lines) {
  const std::string text = read_file(kExamples / "own_search/main.cpp");
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 50);
}

TEST_F(OwnExamples, own_sink_ends_the_run_where_it_cannot_write) {
  const std::string line = kOwnSink + " " + (kExamples / "own_sink/run.toml").string();
  const auto result = go(line + " run absent/epochs.csv");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.output,
            "[epoch_table] cannot write absent/epochs.csv; name a file that can be written\n");
  EXPECT_EQ(go(kOwnSink + " none.toml run epochs.csv").code, 2);
}

TEST_F(OwnExamples, own_sink_writes_a_row_an_epoch_and_changes_no_number) {
  const std::string config = (kExamples / "own_sink/run.toml").string();
  const auto result = go(kOwnSink + " " + config + " run epochs.csv");
  ASSERT_EQ(result.code, 0) << result.output;
  std::istringstream table(read_file(temporary_.path() / "epochs.csv"));
  std::string header, row;
  std::getline(table, header);
  EXPECT_EQ(header, "epoch,steps,skipped,mean_loss,learning_rate,samples_per_second");
  int rows = 0;
  double loss = 10;
  for (; std::getline(table, row); ++rows) {
    EXPECT_EQ(row.rfind(std::to_string(rows) + ",45,0,", 0), 0u) << row;
    const double mean = std::stod(row.substr(row.find(",45,0,") + 6));
    EXPECT_LT(mean, loss);
    loss = mean;
  }
  EXPECT_EQ(rows, 3);
  ASSERT_EQ(go(kTanren + " run " + config + " --quiet --out plain").code, 0);
  EXPECT_EQ(read_file(temporary_.path() / "run/checkpoints/step-135/model.safetensors"),
            read_file(temporary_.path() / "plain/checkpoints/step-135/model.safetensors"));
}

TEST_F(OwnExamples, own_loop_says_in_one_line_what_it_cannot_read) {
  const auto result = go(kOwnLoop + " absent.csv run");
  EXPECT_EQ(result.code, 1);
  TANREN_EXPECT_CONTAINS(result.output, "absent.csv");
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
}

TEST_F(OwnExamples, own_loop_stopped_and_gone_on_with_equals_one_that_was_not_stopped) {
  const std::string line = kOwnLoop + " " + (kExamples / "digits/train.csv").string();
  const auto whole = go(line + " whole");
  const auto first = go(line + " parts 70");
  const auto second = go(line + " parts");
  ASSERT_EQ(whole.code, 0) << whole.output;
  ASSERT_EQ(first.code, 0) << first.output;
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_TRUE(fs::exists(temporary_.path() / "parts/step-70"));
  TANREN_EXPECT_CONTAINS(second.output, "resuming from parts/step-70\n");
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(read_file(temporary_.path() / "whole/step-200" / file),
              read_file(temporary_.path() / "parts/step-200" / file))
        << file;
  }
  const std::string last = "step 200 loss ";
  const auto at = whole.output.rfind(last);
  ASSERT_NE(at, std::string::npos) << whole.output;
  EXPECT_LT(std::stod(whole.output.substr(at + last.size())), 1.0) << "ten classes start at 2.3";
}

TEST_F(OwnExamples, own_loop_with_the_line_total_loss_plus_loss_is_warned_of_once_by_name) {
  const std::string leaking = "OMP_NUM_THREADS=1 " TANREN_BUILD_DIR "/own_loop_leaking ";
  const auto result = go(leaking + (kExamples / "digits/train.csv").string() + " run 150");
  ASSERT_EQ(result.code, 0) << result.output;
  const auto at = result.output.find("[guard] after ");
  ASSERT_NE(at, std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("[guard]", at + 1), std::string::npos) << "once: " << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "autograd nodes alive");
  TANREN_EXPECT_CONTAINS(result.output, "the last AddBackward0 of aten::add_");
}

TEST_F(OwnExamples, own_loop_as_it_stands_is_not_warned_of) {
  const auto result = go(kOwnLoop + " " + (kExamples / "digits/train.csv").string() + " run 150");
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.output.find("[guard]"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace tanren::testing
