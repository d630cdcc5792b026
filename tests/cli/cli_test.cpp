// The program as users see it: bad input gives one clear line and exit code 2, and no file is lost
// or half-written. Verbs, flags and exit codes stay stable.
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/metrics/event_reader_test_util.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <array>

#include <algorithm>
#include <regex>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

class Cli : public ::testing::Test {
 protected:
  Cli() {
    folder_.file("run.toml", R"([run]
steps = 4
threads = 1
[model]
kind = "mlp"
hidden = [8]
[data.train]
kind = "csv"
path = "train.csv"
classes = 3
[data.eval]
kind = "csv"
path = "train.csv"
classes = 3
[batch]
global_batch = 4
[precision]
mode = "fp32"
[checkpoint]
every = 2
)");
    std::string rows = "label,a,b\n";
    for (int i = 0; i < 12; ++i) {
      rows += std::to_string(i % 3) + "," + std::to_string(i) + ",0.5\n";
    }
    folder_.file("train.csv", rows);
  }

  ShellResult tanren(const std::string& arguments) const {
    return shell(forked_tanren() + " " + arguments, folder_.path());
  }

  // Expects exit code 2, one line (or one per problem) with all `parts`, and no run folder.
  void refuses(const std::string& arguments, const std::vector<std::string>& parts) const {
    const auto result = tanren(arguments);
    EXPECT_EQ(result.code, 2) << arguments << "\n" << result.output;
    for (const auto& part : parts) {
      EXPECT_NE(result.output.find(part), std::string::npos) << part << " in:\n" << result.output;
    }
    EXPECT_EQ(result.output.find("terminate called"), std::string::npos);
  }

  bool exists(const std::string& name) const { return fs::exists(folder_.path() / name); }

  TemporaryFolder folder_;
};

TEST_F(Cli, refuses_unusable_config_files_and_makes_no_folder) {
  folder_.file("empty.toml", "");
  folder_.file("cut.toml", "[run]\nsteps = 4\n[mod");
  folder_.file("wrong.toml", "fp16 = true\n[run]\nsteps = \"many\"\n");
  refuses("run no.toml --out out", {"[config] no.toml does not exist"});
  refuses("run empty.toml --out out", {"[config] empty.toml is empty"});
  refuses("run cut.toml --out out", {"[config] cut.toml:3"});
  refuses("run wrong.toml --out out",
          {"precision.mode = \"fp16\"", "run.steps must be a whole number"});
  refuses("run . --out out", {"is no run folder"});
  refuses("run run.toml --out out --set batch.global_batch=-1", {"batch.global_batch is \"-1\""});
  EXPECT_FALSE(exists("out"));
  EXPECT_FALSE(exists("runs"));
}

TEST_F(Cli, refuses_unusable_data_naming_row_value_and_bound) {
  folder_.file("label.csv", "label,a,b\n0,1,2\n7,1,2\n");
  folder_.file("nan.csv", "label,a,b\n0,1,nan\n");
  folder_.file("cut.csv", "label,a,b\n0,1\n");
  folder_.file("empty.csv", "");
  folder_.file("short.safetensors", "abc");
  const std::string set = "run run.toml --out out --set data.train.path=";
  refuses(set + "label.csv", {"label.csv:3", "7", "[0, 3)"});
  refuses(set + "nan.csv", {"nan.csv:2", "column b"});
  refuses(set + "cut.csv", {"cut.csv:2", "cells"});
  refuses(set + "empty.csv", {"empty"});
  refuses(set + "none.csv", {"none.csv"});
  refuses(set + "short.safetensors --set data.train.kind=tensors", {"short.safetensors"});
  EXPECT_FALSE(exists("out"));
}

TEST_F(Cli, refuses_an_output_folder_that_cannot_be_or_is_not_a_runs) {
  folder_.file("file", "x");
  fs::create_directory(folder_.path() / "other");
  std::ofstream(folder_.path() / "other" / "precious.txt") << "x";
  refuses("run run.toml --out file", {"is a file"});
  refuses("run run.toml --out file/below", {"cannot write to"});
  refuses("run run.toml --out other", {"holds other files and no run"});
  for (const char* verb : {"run", "plan"}) {
    refuses(
        std::string(verb) + " run.toml --set memory.limit=1KB",
        {"[plan] memory.limit 1000 B is less than a step needs", "the smallest limit that works"});
  }
  EXPECT_TRUE(exists("other/precious.txt"));
  EXPECT_FALSE(exists("other/config.toml"));
}

TEST_F(Cli, a_full_disk_fails_the_run_and_leaves_nothing_that_looks_complete) {
  // Files may not grow past 64 KiB: the config fits, the first checkpoint does not.
  const auto result = shell("ulimit -f 64; trap '' XFSZ; exec " + std::string(TANREN_BINARY) +
                                " run run.toml --out full --quiet --set metrics.jsonl=false "
                                "--set model.hidden=[20000]",
                            folder_.path());
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_NE(result.output.find("cannot"), std::string::npos) << result.output;
  for (const auto& entry : fs::directory_iterator(folder_.path() / "full" / "checkpoints")) {
    ADD_FAILURE() << entry.path();
  }
  EXPECT_EQ(tanren("run run.toml --out full --quiet --set metrics.jsonl=false "
                   "--set model.hidden=[20000]")
                .code,
            0);
}

TEST_F(Cli, refuses_metrics_that_do_not_fit_the_task_before_anything_is_made) {
  const std::string with = "run run.toml --out out --set evaluate.metrics=";
  refuses(with + "[accuracy,r2]", {"[plan] evaluate.metrics has \"r2\"", "does not fit this task"});
  refuses(with + "[top4]", {"top4", "needs 4 classes, the model has 3"});
  refuses(with + "[f1_binary]", {"needs two classes"});
  refuses(with + "[f1]", {"say how classes are averaged", "f1_macro"});
  const std::string values =
      " --set model.loss=mse --set data.train.label_type=value --set data.eval.label_type=value "
      "--set data.train.classes=0 --set data.eval.classes=0";
  refuses(with + "[auroc]" + values, {"auroc", "what fits is mse, mae, r2"});
  refuses(with + "[perplexity]" + values, {"perplexity"});
  refuses("plan run.toml --set evaluate.metrics=[mae]", {"mae"});
  EXPECT_FALSE(exists("out"));
  EXPECT_EQ(tanren("run run.toml --out values --quiet" + values).code, 0);
}

TEST_F(Cli, a_full_disk_under_tensorboard_is_one_warning_and_the_run_goes_on) {
  // Limits files to 32 KiB, or 16 if the shell counts in blocks of 512 bytes. The event file
  // exceeds both.
  const auto result = shell("ulimit -f 32; trap '' XFSZ; exec " + std::string(TANREN_BINARY) +
                                " run run.toml --out full --quiet --set metrics.jsonl=false "
                                "--set run.steps=200 --set checkpoint.every=50",
                            folder_.path());
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "the run goes on without it");
  EXPECT_TRUE(exists("full/checkpoints/step-200/COMPLETE"));
  const auto curves = read_curves(folder_.path() / "full" / "tensorboard");
  EXPECT_GT(curves.at("train/loss").size(), 10u);
  EXPECT_LT(curves.at("train/loss").size(), 200u);
}

TEST_F(Cli, a_tensorboard_folder_that_cannot_be_is_one_warning) {
  ASSERT_EQ(tanren("run run.toml --quiet --set run.stop_after=1").code, 0);
  fs::remove_all(folder_.path() / "runs/run/tensorboard");
  folder_.file("runs/run/tensorboard", "in the way");
  const auto result = tanren("run run.toml --json");
  EXPECT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "the run goes on without TensorBoard");
}

TEST_F(Cli, writes_what_an_evaluation_says_of_classes_and_eval_says_the_same) {
  const std::string metrics =
      " --set evaluate.metrics=[accuracy,f1_macro,auroc,perplexity,confusion_matrix]";
  const auto run = tanren("run run.toml --json" + metrics);
  ASSERT_EQ(run.code, 0) << run.output;
  const auto summary = nlohmann::json::parse(run.output);  // fails if anything else is printed
  EXPECT_TRUE(summary.contains("evaluate.f1_macro") && summary.contains("evaluate.auroc"));
  const auto report = nlohmann::json::parse(read_file(folder_.path() / "runs/run/evaluation.json"));
  EXPECT_EQ(report["values"]["f1_macro"], summary["evaluate.f1_macro"]);
  EXPECT_EQ(report["classes"].size(), 3u);
  EXPECT_EQ(report["auroc_error"], 0);
  const auto eval = tanren("eval runs/run --json");
  ASSERT_EQ(eval.code, 0) << eval.output;
  const auto again = nlohmann::json::parse(eval.output);
  EXPECT_EQ(again["confusion_matrix"], report["confusion_matrix"]);
  EXPECT_EQ(again["classes"], report["classes"]);
  TANREN_EXPECT_CONTAINS(tanren("eval runs/run").output, "| target \\ prediction | 0 | 1 | 2 |");
  const auto log = read_file(folder_.path() / "runs/run/log.jsonl");
  TANREN_EXPECT_CONTAINS(log, "\"confusion_matrix\":[[");
  const auto curves = read_curves(folder_.path() / "runs/run/tensorboard");
  EXPECT_EQ(curves.count("evaluate/f1_macro") + curves.count("evaluate/perplexity"), 2u);
  EXPECT_EQ(curves.count("evaluate/confusion_matrix"), 0u);  // it is text, not a curve
}

TEST_F(Cli, trains_evaluates_and_refuses_the_finished_folder) {
  ASSERT_EQ(tanren("run run.toml --quiet").code, 0);
  for (const char* file :
       {"config.toml", "plan.txt", "log.jsonl", "summary.json", "model.safetensors",
        "model.tanren.safetensors", "checkpoints/step-2/COMPLETE", "checkpoints/step-4/COMPLETE"}) {
    EXPECT_TRUE(exists(std::string("runs/run/") + file)) << file;
  }
  refuses("run run.toml", {"is finished", "run.steps"});
  refuses("run runs/run", {"is finished"});
  refuses("run run.toml --set model.hidden=[9]", {"model.hidden: [8] → [9]"});
  const auto eval = tanren("eval runs/run --json");
  ASSERT_EQ(eval.code, 0) << eval.output;
  EXPECT_EQ(nlohmann::json::parse(eval.output)["samples"], 12);
  EXPECT_EQ(tanren("run runs/run --quiet --set run.steps=6").code, 0);
  const auto log = shell("grep -c attempt runs/run/log.jsonl", folder_.path());
  EXPECT_EQ(log.output, "6\n");
}

TEST_F(Cli, a_finished_run_that_is_to_go_on_and_fails_goes_on_with_the_same_command) {
  ASSERT_EQ(tanren("run run.toml --quiet").code, 0);
  const std::string longer = "run runs/run --quiet --set run.steps=6";
  const auto weights = folder_.path() / "runs/run/checkpoints/step-4/model.safetensors";
  std::filesystem::rename(weights, folder_.path() / "away");
  refuses(longer, {"step-4"});
  std::filesystem::rename(folder_.path() / "away", weights);
  const auto again = tanren(longer);
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(shell("grep -c attempt runs/run/log.jsonl", folder_.path()).output, "6\n");
  refuses(longer, {"is finished", "run.steps"});
}

TEST_F(Cli, refuses_to_judge_by_what_is_not_measured_and_data_that_do_not_fit_before_it_starts) {
  const std::string run = "run run.toml --out out --set ";
  const std::string every = " --set evaluate.every=1";
  refuses(run + "checkpoint.best=1", {"checkpoint.best needs evaluations", "evaluate.every"});
  refuses(run + "checkpoint.best=1 --set checkpoint.metric=f2" + every,
          {"checkpoint.metric \"f2\" is not measured; one of loss, accuracy"});
  refuses(run + "early_stop.patience=-1" + every, {"early_stop.patience is -1"});
  refuses(run +
              "early_stop.patience=1 --set data.eval.kind= --set data.eval.path= "
              "--set data.eval.classes=0",
          {"early_stop.patience needs evaluations", "add [data.eval]"});
  folder_.file("more.csv", "label,a,b\n0,1,2\n7,1,2\n");
  folder_.file("wide.csv", "label,a,b,c\n0,1,2,3\n");
  refuses(run + "data.eval.path=more.csv --set data.eval.classes=0",
          {"data.eval has 8 classes, data.train has 3"});
  refuses(run + "data.eval.path=wide.csv",
          {"inputs of data.eval are [3]", "data.train, for which the model is built, [2]"});
  refuses("plan run.toml --set data.eval.path=wide.csv", {"inputs of data.eval are [3]"});
  folder_.file("turned.csv", "label,b,a\n0,1,2\n1,2,3\n");
  refuses("plan run.toml --set data.eval.path=turned.csv",
          {"feature column 1 of data.eval is \"b\", of data.train \"a\""});
  EXPECT_FALSE(exists("out"));
}

TEST_F(Cli, a_run_that_no_longer_improves_ends_as_finished_and_hands_its_best_weights_over) {
  const auto result = tanren(
      "run run.toml --out r --set evaluate.every=1 --set early_stop.patience=2 "
      "--set checkpoint.best=1 --set optimizer.learning_rate=1e-30 --set run.steps=50 "
      "--set average.kind=ema");
  ASSERT_EQ(result.code, 0) << result.output;
  for (const char* part :
       {"finished: 3 steps", "ended early: loss has not improved on", "(early_stop)",
        "weights: r/model.safetensors (averaged, best loss", "evaluation at step 3 (averaged"}) {
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in:\n" << result.output;
  }
  EXPECT_TRUE(exists("r/checkpoints/best/COMPLETE"));
  refuses("run r --set run.steps=60", {"is finished (loss has", "early_stop.patience"});
  const auto best = tanren("eval r --json --set evaluate.checkpoint=best");
  ASSERT_EQ(best.code, 0) << best.output;
  EXPECT_EQ(nlohmann::json::parse(best.output)["step"], 1);
  EXPECT_EQ(nlohmann::json::parse(best.output)["weights"], "averaged");
  refuses("eval r --set evaluate.checkpoint=step-77", {"has no complete step-77"});
  EXPECT_EQ(tanren("eval r --set evaluate.checkpoint=exported").code, 0);
}

TEST_F(Cli, stop_after_is_of_one_session) {
  EXPECT_EQ(tanren("run run.toml --quiet --set run.stop_after=1").code, 0);
  EXPECT_EQ(tanren("run runs/run --quiet").code, 0);
  EXPECT_TRUE(exists("runs/run/checkpoints/step-4/COMPLETE"));
}

TEST_F(Cli, refuses_damaged_and_foreign_checkpoints) {
  ASSERT_EQ(tanren("run run.toml --quiet --set run.stop_after=3").code, 0);
  const auto model = folder_.path() / "runs/run/checkpoints/step-3/model.safetensors";
  const auto size = fs::file_size(model);
  fs::resize_file(model, size - 1);
  refuses("run run.toml", {"model.safetensors", "bytes"});
  refuses("eval runs/run", {"model.safetensors"});
  fs::remove(model);
  refuses("run run.toml", {"model.safetensors", "missing"});
  // Without its marker it is no checkpoint: the run resumes from the previous one.
  fs::remove(folder_.path() / "runs/run/checkpoints/step-3/COMPLETE");
  const auto result = tanren("run run.toml");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("step-2"), std::string::npos) << result.output;
}

TEST_F(Cli, lists_names_and_shapes_of_another_models_checkpoint) {
  ASSERT_EQ(tanren("run run.toml --quiet --set run.stop_after=1 --out a").code, 0);
  ASSERT_EQ(
      tanren("run run.toml --quiet --set run.stop_after=1 --out b --set model.hidden=[9]").code, 0);
  fs::remove_all(folder_.path() / "a/checkpoints");
  fs::copy(folder_.path() / "b/checkpoints", folder_.path() / "a/checkpoints",
           fs::copy_options::recursive);
  refuses("run a", {"another model", "[9, 2]", "[8, 2]"});
}

TEST_F(Cli, a_non_finite_loss_ends_the_run_with_1_and_names_step_and_checkpoint) {
  std::string rows = "label,a,b\n";
  for (int i = 0; i < 12; ++i) rows += "0,3e38,3e38\n";
  folder_.file("huge.csv", rows);
  folder_.file("value.toml", R"([run]
steps = 4
[model]
kind = "mlp"
loss = "mse"
[data.train]
kind = "csv"
path = "huge.csv"
label_type = "value"
[batch]
global_batch = 4
)");
  const auto result = tanren("run value.toml --quiet");
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_NE(result.output.find("[guard] step 1 (attempt 1): non-finite loss in microbatch 0"),
            std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("last checkpoint: runs/value/checkpoints/step-0"), std::string::npos)
      << result.output;
}

TEST_F(Cli, a_second_process_on_a_run_folder_is_refused) {
  const auto result =
      shell("B=" + std::string(TANREN_BINARY) +
                "; $B run run.toml --quiet --out r --set run.steps=1000000 & P=$!; "
                "for i in $(seq 200); do [ -s r/log.jsonl ] && break; sleep 0.05; done; "
                "$B run run.toml --out r --set run.steps=1000000; echo second $?; kill -TERM $P; "
                "wait $P; "
                "echo first $?",
            folder_.path());
  EXPECT_NE(result.output.find("in use by another process"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("second 2"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("first 130"), std::string::npos) << result.output;
}

// Issue 26: a verb whose output was lost on a full disk ended with 0.
TEST_F(Cli, output_that_cannot_be_written_ends_every_verb_with_1_and_one_line) {
  const std::string fixture = TANREN_SOURCE_DIR "/tests/fixtures/pt/checkpoint.pt";
  for (const std::string& arguments :
       {std::string("--help"), std::string("--version"), std::string("help clip.norm"),
        std::string("runs ."), std::string("doctor"), std::string("completion bash"),
        std::string("plan run.toml"), std::string("plan run.toml --json"),
        std::string("summary run.toml"), "convert " + fixture + " --list",
        std::string("run run.toml --out full --json")}) {
    const auto result = tanren(arguments + " >/dev/full");
    EXPECT_EQ(result.code, 1) << arguments << "\n" << result.output;
    const std::string line = "] cannot write to standard output; make room, or send it elsewhere\n";
    EXPECT_TRUE(result.output.ends_with(line)) << arguments << "\n" << result.output;
    EXPECT_EQ(result.output.find(line), result.output.rfind(line)) << arguments;
  }
  EXPECT_TRUE(exists("full/model.tanren.safetensors")) << "the run itself is whole";
  // Bad input still gives 2. Without output, a full disk is no error.
  EXPECT_EQ(tanren("help clip.nrom >/dev/full").code, 2);
  EXPECT_EQ(tanren("run run.toml --out left --quiet >/dev/full").code, 0) << "it prints nothing";
  const auto left = shell(
      "(" + forked_tanren() + " run run.toml --out read; echo code $? >&2) | true", folder_.path());
  EXPECT_NE(left.output.find("code 0\n"), std::string::npos) << left.output;
}

TEST_F(Cli, verbs_and_flags_are_these_and_unknown_ones_are_refused) {
  refuses("rnu run.toml",
          {"unknown verb \"rnu\"",
           "run, plan, eval, predict, generate, launch, summary, sweep, anatomy, quantize, "
           "convert, doctor, monitor, runs, "
           "help, "
           "completion"});
  refuses("", {});
  refuses("run", {"FILE"});
  refuses("run run.toml --fast", {"run takes no --fast", "--set KEY=VALUE"});
  refuses("run run.toml --epochs 3",
          {"takes no --epochs 3", "--set KEY=VALUE; here it is run.epochs"});
  refuses("run run.toml --lr=0.1",
          {"takes no --lr=0.1", "--set KEY=VALUE; here it is optimizer.learning_rate"});
  std::string flags = tanren("--help").output;
  for (const char* verb :
       {"run", "plan", "eval", "predict", "generate", "launch", "summary", "sweep", "anatomy",
        "quantize", "convert", "doctor", "monitor", "runs", "help", "completion"}) {
    flags += tanren(std::string(verb) + " --help").output;
  }
  std::set<std::string> found;
  const std::regex flag("--[a-z]+(-[a-z]+)*");
  for (std::sregex_iterator at(flags.begin(), flags.end(), flag), end; at != end; ++at) {
    found.insert(at->str());
  }
  EXPECT_EQ(found,
            (std::set<std::string>{
                "--dtype",  "--force",     "--fork",      "--help",    "--interval",    "--json",
                "--list",   "--master",    "--no-advice", "--nodes",   "--node-rank",   "--once",
                "--out",    "--optimizer", "--prompt",    "--quiet",   "--predictions", "--ranks",
                "--rename", "--set",       "--tokenizer", "--verbose", "--version"}));
}

TEST_F(Cli, summary_shows_modules_and_totals_without_weights_or_a_run_folder) {
  refuses("summary none.toml", {"[config] none.toml does not exist"});
  const auto text = tanren("summary run.toml");
  EXPECT_EQ(text.code, 0) << text.output;
  for (const char* part : {"hidden.0  Linear  [1, 8]", "\nTotal params: 51\n",
                           "\nTotal mult-adds: 40\n", "Params size (MB): 0.00"}) {
    EXPECT_NE(text.output.find(part), std::string::npos) << part << " in:\n" << text.output;
  }
  const auto huge = tanren(
      "summary run.toml --json --set model.hidden=[1000000,1000000] --set batch.microbatch=3");
  ASSERT_EQ(huge.code, 0) << huge.output;
  const auto json = nlohmann::json::parse(huge.output);
  EXPECT_EQ(json["total"]["parameters"], 1'000'007'000'003LL);
  EXPECT_EQ(json["modules"].back()["output_shape"], (std::vector<int>{3, 3}));
  EXPECT_FALSE(exists("runs"));
}

TEST_F(Cli, converts_weights_both_ways_and_refuses_what_it_cannot) {
  const std::string fixture = TANREN_SOURCE_DIR "/tests/fixtures/pt/checkpoint.pt";
  refuses("convert none.pt out.pt", {"[file] cannot read none.pt"});
  refuses("convert train.csv out.pt", {"train.csv"});
  refuses("convert " + fixture, {"the file to write is missing"});
  refuses("convert " + fixture + " out.onnx", {"out.onnx says no format"});
  refuses("convert " + fixture + " out.pt --rename nothing=x", {"fits no tensor"});
  refuses("convert " + fixture + " out.pt --rename nothing", {"is no old=new"});
  refuses("convert " + fixture + " out.pt --dtype int8", {"one of fp32, fp16, bf16, fp64"});
  refuses("convert train.csv out.bin --tokenizer none.json", {"cannot read none.json"});
  EXPECT_FALSE(exists("out.pt"));
  EXPECT_FALSE(exists("out.bin"));
  const auto done = tanren("convert " + fixture + " out.safetensors --rename head=classifier");
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_NE(done.output.find("took model (9 of 27 tensors)"), std::string::npos) << done.output;
  EXPECT_EQ(tanren("convert out.safetensors back.pt --dtype bf16").code, 0);
  const auto list = nlohmann::json::parse(tanren("convert back.pt --list --json").output);
  EXPECT_EQ(list["kind"], "state_dict");
  EXPECT_EQ(list["tensors"]["classifier.weight"]["dtype"], "bfloat16");
  EXPECT_EQ(list["tensors"]["classifier.weight"]["shape"], (std::vector<int>{3, 8}));
  const auto ids = tanren("convert train.csv ids.bin --tokenizer " TANREN_SOURCE_DIR
                          "/tests/fixtures/tokenizer/bpe.json");
  EXPECT_NE(ids.output.find("uint16, vocabulary 600"), std::string::npos) << ids.output;
  EXPECT_TRUE(exists("ids.bin"));
}

TEST_F(Cli, lists_and_converts_every_kind_of_file_that_python_leaves) {
  const std::string folder = TANREN_SOURCE_DIR "/tests/fixtures/pt/";
  const auto tensors_of = [&](const std::string& file) {
    return nlohmann::json::parse(tanren("convert " + file + " --list --json").output)["tensors"];
  };
  const auto wanted = tensors_of(folder + "model.safetensors");
  const std::vector<std::array<std::string, 3>> files = {
      {"module.pt", "module of class __main__.Small", ""},
      {"checkpoint.pt", "checkpoint", "took model (9 of 27 tensors)"},
      {"data_parallel.pt", "state_dict", "took the prefix module. off every name"},
      {"compiled.pt", "checkpoint", "took the prefix _orig_mod. off every name"},
      {"torchscript.pt", "TorchScript archive", ""}};
  for (const auto& [name, kind, remark] : files) {
    SCOPED_TRACE(name);
    const auto list = tanren("convert " + folder + name + " --list");
    EXPECT_EQ(list.output.rfind(kind + ": ", 0), 0u) << list.output;  // names the kind
    EXPECT_NE(list.output.find("head.weight  [3, 8]  float32"), std::string::npos) << list.output;
    const auto done = tanren("convert " + folder + name + " all.safetensors");
    EXPECT_EQ(done.code, 0) << done.output;
    EXPECT_NE(done.output.find(remark), std::string::npos) << done.output;
    EXPECT_NE(done.output.find(" tensors from " + kind), std::string::npos) << done.output;
    auto found = tensors_of("all.safetensors");
    found.erase("scratch");  // TorchScript does not mark non-persistent buffers
    EXPECT_EQ(found, wanted);
  }
  const auto whole = tanren("convert " + folder + "torchvision_module.pt out.pt --rename fc=head");
  EXPECT_EQ(whole.code, 0) << whole.output;
  EXPECT_TRUE(tensors_of("out.pt").contains("head.weight"));
}

TEST_F(Cli, explains_and_plans_as_text_and_json) {
  EXPECT_NE(tanren("help clip.norm").output.find("clip.norm"), std::string::npos);
  refuses("help clip.nrom", {"nearest: clip.norm"});
  const auto plan = tanren("plan run.toml --json");
  EXPECT_EQ(nlohmann::json::parse(plan.output)["global_batch"]["value"], "4");
  EXPECT_NE(tanren("plan run.toml").output.find("4 = 1 rank × 4"), std::string::npos);
  EXPECT_FALSE(exists("runs"));
  const auto machine = nlohmann::json::parse(tanren("doctor --json").output);
  EXPECT_TRUE(machine.contains("cores"));
  EXPECT_TRUE(machine["cpu_vnni"].is_boolean() && machine["cpu_amx_int8"].is_boolean());
  const std::string kernels = machine["int8_kernels"].get<std::string>();
  EXPECT_NE(tanren("doctor").output.find("int8     " + kernels + "\n"), std::string::npos);
  const auto summary = nlohmann::json::parse(tanren("run run.toml --json").output);
  EXPECT_EQ(summary["steps"], 4);
  EXPECT_EQ(summary["device_reads_per_step"], 1);
  EXPECT_TRUE(summary.contains("evaluate.accuracy"));
}

}  // namespace
}  // namespace tanren::testing
