// Resuming a run folder, as a user does (issue 21). Other data are refused, moved data are not. A
// run that the guard ended resumes with the change that its message advises. If two starts overlap,
// the second is refused before it reads anything.
#include "tests/support/child.h"
#include "tests/support/command_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kPatience = std::chrono::milliseconds(120'000);

class GoingOn : public CommandRun {
 protected:
  // Writes an unshuffled regression data set in which the batches `bad` (of four rows, counted from
  // 0) consist of `row`. The default row gives an infinite loss.
  void write_values(int batches, const std::vector<int>& bad,
                    const std::string& row = "0,3e38,3e38") const {
    std::string text = "label,a,b\n";
    for (int i = 0; i < 4 * batches; ++i) {
      const bool is_bad = std::find(bad.begin(), bad.end(), i / 4) != bad.end();
      text += is_bad ? row + "\n" : std::to_string(i % 3) + "," + std::to_string(i) + ",0.5\n";
    }
    folder_.file("values.csv", text);
    folder_.file(
        "values.toml",
        "[run]\nsteps = 6\nthreads = 1\nseed = 3\n[model]\nkind = \"mlp\"\nloss = \"mse\"\n"
        "hidden = [8]\n[data]\nshuffle = false\n[data.train]\nkind = \"csv\"\n"
        "path = \"values.csv\"\nlabel_type = \"value\"\n[batch]\nglobal_batch = 4\n"
        "[precision]\nmode = \"fp32\"\n");
  }
};

// Otherwise the run would begin again and lose its log.
TEST_F(GoingOn, behind_a_link_to_a_disk_that_is_not_there_is_refused_and_loses_nothing) {
  stop_after("out", 3);
  fs::rename(at("out/checkpoints"), at("disk"));
  fs::create_directory_symlink(at("disk"), at("out/checkpoints"));
  expect_code("run out --quiet --set run.stop_after=1", 0, {});
  const std::string before = read_file(at("out/log.jsonl"));
  fs::rename(at("disk"), at("away"));
  for (const char* arguments : {"run out --quiet", "run run.toml --quiet --out out", "plan out"}) {
    expect_code(arguments, 2,
                {"[run] out/checkpoints (a link to ",
                 "/disk) cannot be listed (No such file or directory); make it reachable"});
  }
  fs::create_directory(at("disk"));  // the mount point without the disk
  expect_code("run out --quiet", 2,
              {"/disk) has no complete checkpoint, and the run has saved some"});
  EXPECT_EQ(read_file(at("out/log.jsonl")), before);
  fs::remove(at("disk"));
  fs::rename(at("away"), at("disk"));
  expect_code("run out --quiet", 0, {});
  EXPECT_EQ(last_attempt("out")["step"], 8);
}

// Issue 26: only the summary recorded that checkpoints exist, and a killed session writes no
// summary.
TEST_F(GoingOn, after_a_kill_without_the_checkpoints_that_were_saved_is_refused) {
  const auto kill = [&](const std::string& out) { fs::remove(at(out) / "summary.json"); };
  const auto expect_kept = [&](const std::string& out) {
    const std::string before = read_file(at(out) / "log.jsonl");
    for (const std::string verb : {"run ", "plan "}) {
      expect_code(verb + out, 2,
                  {out + "/checkpoints",
                   " has no complete checkpoint, and the run has saved some; "
                   "mount the disk that belongs there or put them back, or "
                   "remove it if the run is to begin again"});
    }
    EXPECT_EQ(read_file(at(out) / "log.jsonl"), before);
  };
  stop_after("out", 3);
  expect_code("run out --quiet --fork --out fork --set run.stop_after=1", 0, {});
  for (const std::string out : {"out", "fork"}) {
    kill(out);
    const fs::path checkpoints = at(out) / "checkpoints", away = at(out + "-away");
    fs::rename(checkpoints, away);
    fs::create_directory(at(out + "-disk"));  // a mount point without its disk
    fs::create_directory_symlink(at(out + "-disk"), checkpoints);
    expect_kept(out);
    fs::remove(checkpoints);
    fs::create_directory(checkpoints);  // the same without a link
    expect_kept(out);
    fs::remove(checkpoints);
    fs::rename(away, checkpoints);
    expect_code("run " + out + " --quiet --set run.stop_after=1", 0, {});
  }
  EXPECT_EQ(last_attempt("out")["step"], 4);
  fs::remove_all(at("out/checkpoints"));  // begins again
  expect_code("run out --quiet --set run.stop_after=1", 0, {});
  EXPECT_EQ(last_attempt("out")["step"], 1);
}

TEST_F(GoingOn, on_other_training_data_is_refused_and_names_what_differs) {
  stop_after("out", 2);
  const std::string before = read_file(at("out") / "log.jsonl");
  folder_.file("train.csv", rows(23));
  expect_code("run out --quiet", 2,
              {"[data] 23 samples of data.train, ", "was made with 24", "run.name"});
  folder_.file("train.csv", rows(24, /*first_label=*/1));
  expect_code("run out --quiet", 2, {"[data] labels of data.train are not those that"});
  std::string other = rows(24);
  folder_.file("train.csv", other.replace(other.find("0.5"), 3, "0.6"));
  expect_code("run run.toml --out out --quiet", 2,
              {"[data] inputs of data.train are not those that"});
  EXPECT_EQ(read_file(at("out") / "log.jsonl"), before);
  folder_.file("train.csv", rows(24));  // the same content, written again
  expect_code("run out --quiet", 0, {});
}

// Issue 22: a repaired file of the same name was refused.
TEST_F(GoingOn, on_other_evaluation_data_is_refused_where_they_decide_and_told_elsewhere) {
  stop_after("out", 5, "--set checkpoint.best=1");
  stop_after("free", 5);
  folder_.file("eval.csv", rows(10));
  expect_code("run out --quiet", 2,
              {"[data] 10 samples of data.eval, ", "evaluations decide over this run"});
  expect_code("eval out", 0, {});
  expect_code("run free --quiet", 0, {"[data] data.eval is other data after step 5"});
  folder_.file("eval.csv", rows(9));
  expect_code("run out --quiet", 0, {});
}

TEST_F(GoingOn, on_other_files_of_text_is_refused_and_where_they_lie_counts_nothing) {
  fs::create_directory(at("texts"));
  folder_.file("texts/a.txt", std::string(300, 'a'));
  folder_.file("texts/b.txt", std::string(300, 'b'));
  folder_.file("text.toml",
               "[run]\nsteps = 6\nthreads = 1\n[model]\nkind = \"lstm\"\ntask = \"next_token\"\n"
               "hidden_size = 8\n[data.train]\nkind = \"text\"\npath = \"texts\"\ncontext = 10\n"
               "[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n");
  ASSERT_EQ(tanren("run text.toml --quiet --out out --set run.stop_after=2").code, 0);
  fs::rename(at("texts/a.txt"), at("texts/c.txt"));
  expect_code("run out --quiet", 2, {"[data] file names of data.train are not those that"});
  fs::rename(at("texts/c.txt"), at("texts/a.txt"));
  folder_.file("texts/a.txt", std::string(299, 'a') + "b");
  expect_code("run out --quiet", 2, {"[data] contents of data.train are not those that"});
  folder_.file("texts/a.txt", std::string(301, 'a'));
  expect_code("run out --quiet", 2, {"[data] file sizes of data.train are not those that"});
  folder_.file("texts/a.txt", std::string(300, 'a'));
  fs::rename(at("texts"), at("moved"));
  expect_code("run out --quiet --set data.train.path=moved", 0, {});
}

TEST_F(GoingOn, on_moved_data_is_the_same_run_with_the_same_numbers) {
  ASSERT_EQ(tanren("run run.toml --quiet --out whole").code, 0);
  stop_after("out", 3);
  fs::create_directory(at("disk"));
  fs::rename(at("train.csv"), at("disk/renamed.csv"));
  expect_code("run out --quiet --set data.train.path=disk/renamed.csv --set run.stop_after=2", 0,
              {});
  fs::rename(at("eval.csv"), at("disk/eval.csv"));
  folder_.file("disk/run.toml", config("renamed.csv", "eval.csv"));  // a moved project
  expect_code("run disk/run.toml --out out --quiet", 0, {});
  EXPECT_EQ(plain_log("out"), plain_log("whole"));
  EXPECT_EQ(weights("out"), weights("whole"));
}

TEST_F(GoingOn, a_path_that_is_typed_is_relative_to_where_it_is_typed) {
  fs::create_directory(at("configs"));
  folder_.file("configs/run.toml", config("none.csv", "../eval.csv"));
  expect_code("run configs/run.toml --quiet --out out --set data.train.path=train.csv", 0, {});
  expect_code("run configs/run.toml --quiet --out other --set data.train.path=../train.csv", 2,
              {"cannot read " + (folder_.path().parent_path() / "train.csv").string()});
  // The same for weights.
  expect_code(
      "run configs/run.toml --quiet --out warm --set data.train.path=train.csv --set "
      "model.init_from=out",
      0, {});
}

TEST_F(GoingOn, the_batch_of_an_evaluation_may_change) {
  ASSERT_EQ(tanren("run run.toml --quiet --out whole").code, 0);
  stop_after("out", 3);
  expect_code("run out --quiet --set evaluate.batch=2", 0, {});
  EXPECT_EQ(weights("out"), weights("whole"));
}

TEST_F(GoingOn, after_a_halt_is_the_run_that_skipped_that_batch) {
  write_values(8, {2});
  const auto halted = tanren("run values.toml --quiet --out out");
  EXPECT_EQ(halted.code, 1);
  TANREN_EXPECT_CONTAINS(halted.output, "[guard] step 3 (attempt 3): non-finite loss");
  TANREN_EXPECT_CONTAINS(halted.output, "last checkpoint: out/checkpoints/step-2");
  TANREN_EXPECT_CONTAINS(halted.output, "tanren run out --set optimizer.learning_rate=");
  expect_code("run out --quiet", 0, {});  // without a change
  expect_code("run values.toml --quiet --out skips --set guard.nan_loss=skip", 0, {});
  EXPECT_EQ(weights("out"), weights("skips"));
  const std::string log = plain_log("out");
  EXPECT_EQ(std::regex_replace(log, std::regex("\"halt\""), "\"skip\""), plain_log("skips"));
}

TEST_F(GoingOn, after_a_halt_takes_other_settings_of_the_guard_and_counts_skips_anew) {
  write_values(12, {2, 3, 4, 5});
  const std::string skips = " --quiet --set guard.nan_loss=skip --set guard.max_skips=2";
  expect_code("run values.toml --out out" + skips, 1, {"attempt 4", "2 skips in a row"});
  expect_code("run values.toml --out out" + skips, 1, {"attempt 6", "2 skips in a row"});
  expect_code("run values.toml --out out" + skips, 0, {});
  expect_code("run values.toml --out more" + skips, 1, {"attempt 4"});
  expect_code("run more --quiet --set guard.max_skips=9", 0, {});
  EXPECT_EQ(weights("out"), weights("more"));
}

TEST_F(GoingOn, a_halt_before_the_first_update_keeps_the_start) {
  write_values(4, {0});
  expect_code("run values.toml --quiet --out out", 1, {"last checkpoint: out/checkpoints/step-0"});
  expect_code("run out --quiet --set run.stop_after=3", 0, {});
  EXPECT_EQ(last_attempt("out")["step"], 3);
}

TEST_F(GoingOn, a_halt_leaves_the_checkpoints_before_it) {
  write_values(8, {4});
  expect_code(
      "run values.toml --quiet --out out --set checkpoint.every=2 --set checkpoint.keep=1 --set "
      "run.steps=5",
      1, {"step-4"});
  write_values(8, {5});
  expect_code(
      "run values.toml --quiet --out late --set checkpoint.every=2 --set checkpoint.keep=1 --set "
      "run.steps=7",
      1, {"step-5"});
  EXPECT_TRUE(fs::exists(at("late/checkpoints/step-4/COMPLETE")));
}

TEST_F(GoingOn, a_halt_that_cannot_be_saved_is_still_told_first) {
  write_values(8, {2});
  ASSERT_EQ(tanren("run values.toml --quiet --out out --set run.stop_after=1").code, 0);
  for (const char* name : {"checkpoints", "summary.json", "saved"}) {
    fs::remove_all(at("out") / name);
  }
  fs::create_directory_symlink("/proc", at("out/checkpoints"));  // nobody may write there
  expect_code("run out --quiet", 1,
              {"[guard] step 3 (attempt 3): non-finite loss", "could not be written"});
}

// The third update is finite but the weights after it are not, so the fourth attempt halts.
TEST_F(GoingOn, after_a_halt_with_ruined_weights_is_from_the_checkpoint_before_it) {
  write_values(8, {2}, "0,1e18,0.5");
  expect_code(
      "run values.toml --quiet --out out --set 'model.hidden=[]' --set optimizer.kind=sgd --set "
      "optimizer.learning_rate=1e-6 --set checkpoint.every=2 --set run.stop_after=2",
      0, {});
  expect_code("run out --quiet --set optimizer.learning_rate=1e5", 1,
              {"[guard] step 4 (attempt 4): non-finite loss",
               "last checkpoint: out/checkpoints/step-2", "the weights are not finite",
               "then resume from there: tanren run out --set optimizer.learning_rate="});
  EXPECT_FALSE(fs::exists(at("out/checkpoints/step-3")));
  expect_code("run out --quiet --set optimizer.learning_rate=1e-37", 0, {});
}

// The last update is finite, but the weights after it are not.
TEST_F(GoingOn, after_a_last_update_that_ruined_the_weights_is_from_the_checkpoint_before_it) {
  write_values(8, {2}, "0,1e18,0.5");
  expect_code(
      "run values.toml --quiet --out out --set 'model.hidden=[]' --set optimizer.kind=sgd --set "
      "optimizer.learning_rate=1e-6 --set run.steps=3 --set run.stop_after=2",
      0, {});
  for (const char* more : {"", " --set run.stop_after=1"}) {
    expect_code(
        std::string("run out --quiet --set optimizer.learning_rate=1e5") + more, 1,
        {"[train] step 3: the weights are not finite", "last checkpoint: out/checkpoints/step-2",
         "then resume from there: tanren run out"});
    EXPECT_FALSE(fs::exists(at("out/checkpoints/step-3")));
    EXPECT_FALSE(fs::exists(at("out/model.safetensors")));
  }
  expect_code("run out --quiet --set optimizer.learning_rate=1e-37", 0, {});
  EXPECT_TRUE(fs::exists(at("out/model.safetensors")));
}

TEST_F(GoingOn, a_due_checkpoint_of_ruined_weights_is_not_written) {
  write_values(8, {1}, "0,1e18,0.5");
  expect_code(
      "run values.toml --quiet --out out --set 'model.hidden=[]' --set optimizer.kind=sgd --set "
      "optimizer.learning_rate=1e-6 --set checkpoint.every=2 --set run.stop_after=1",
      0, {});
  expect_code("run out --quiet --set optimizer.learning_rate=1e5", 1,
              {"[train] step 2: the weights are not finite; no checkpoint of them is written",
               "last checkpoint: out/checkpoints/step-1"});
  EXPECT_FALSE(fs::exists(at("out/checkpoints/step-2")));
}

TEST_F(GoingOn, what_was_asked_before_and_does_not_go_with_this_start_is_refused_unwritten) {
  stop_after("out", 3);
  expect_code(
      "run out --quiet --set schedule.kind=reduce_on_plateau --set schedule.patience=5 --set "
      "run.stop_after=2",
      0, {});
  const std::string before = read_file(at("out/config.toml"));
  expect_code("run run.toml --quiet --out out --set schedule.kind=constant", 2,
              {"with what --set asked before (schedule.patience)", "schedule.patience",
               "ask for those keys, too: --set schedule.patience=10"});
  EXPECT_EQ(read_file(at("out/config.toml")), before);
  expect_code("run out --quiet --set run.stop_after=1", 0, {});
  expect_code(
      "run run.toml --quiet --out out --set schedule.kind=constant --set schedule.patience=10", 0,
      {});
}

TEST_F(GoingOn, the_options_that_a_refusal_offers_can_be_pasted_and_are_enough) {
  stop_after("out", 3);
  const std::string steps = "[schedule]\nkind = \"multi_step\"\nmilestones = [5, 7]\n";
  folder_.file("edited.toml", read_file(at("run.toml")) + steps);
  const std::string start = "run edited.toml --quiet --out out";
  const auto refused = tanren(start);
  EXPECT_EQ(refused.code, 2) << refused.output;
  const std::string before = "ask for the change with ";
  const size_t begin = refused.output.find(before), end = refused.output.find(", or name another");
  ASSERT_NE(begin, std::string::npos) << refused.output;
  const std::string offered =
      refused.output.substr(begin + before.size(), end - begin - before.size());
  expect_code(start + " " + offered + " --set run.stop_after=1", 0, {});
  folder_.file("other.toml",
               read_file(at("edited.toml")) + "[optimizer]\nlearning_rate = 0.1\nbeta1 = 0.5\n");
  const auto other = tanren("run other.toml --quiet --out out");
  EXPECT_EQ(other.code, 2) << other.output;
  EXPECT_EQ(other.output.find("ask for"), std::string::npos) << other.output;
}

TEST_F(GoingOn, a_run_that_saved_nothing_begins_again_with_another_tokenizer_and_keeps_that_alone) {
  const fs::path fixtures = fs::path(TANREN_SOURCE_DIR) / "tests/fixtures/tokenizer";
  fs::create_directories(at("a"));
  fs::create_directories(at("b"));
  fs::copy_file(fixtures / "uncased.json", at("a/tokenizer.json"));
  folder_.file("b/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n");
  folder_.file("texts.csv", "text,label\na b,0\nc,1\nb c,2\na,0\n");
  folder_.file("text.toml",
               "[run]\nsteps = 6\nthreads = 1\n[model]\nkind = \"lstm\"\nhidden_size = 6\n"
               "[data.train]\nkind = \"text_table\"\npath = \"texts.csv\"\ncontext = 12\n"
               "tokenizer = \"a\"\n[batch]\nglobal_batch = 2\n[precision]\nmode = \"fp32\"\n");
  const std::string start = "run text.toml --quiet --out out --set run.stop_after=2";
  expect_code(start, 0, {});
  ASSERT_TRUE(fs::exists(at("out/tokenizer/tokenizer.json")));
  fs::remove_all(at("out/checkpoints"));
  expect_code(start + " --set data.train.tokenizer=b", 0, {});
  EXPECT_FALSE(fs::exists(at("out/tokenizer/tokenizer.json")));
  EXPECT_TRUE(fs::exists(at("out/tokenizer/vocab.txt")));
  expect_code("run out --quiet --set run.stop_after=1", 0, {});
  // The config may name the tokenizer files in the run folder itself.
  fs::remove_all(at("out/checkpoints"));
  expect_code(start + " --set data.train.tokenizer=out/tokenizer", 0, {});
  EXPECT_TRUE(fs::exists(at("out/tokenizer/vocab.txt")));
  expect_code("run out --quiet", 0, {});
}

// A run of a hand-written config.toml starts in the folder of that file.
TEST_F(GoingOn, a_first_start_removes_no_file_of_the_user) {
  fs::create_directories(at("mine/tokenizer/own"));
  const std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n";
  folder_.file("mine/tokenizer/own/vocab.txt", vocabulary);
  folder_.file("mine/tokenizer/notes.txt", "notes\n");
  folder_.file("mine/texts.csv", "text,label\na b,0\nc,1\nb c,2\na,0\n");
  folder_.file("mine/config.toml",
               "[run]\nsteps = 2\nthreads = 1\n[model]\nkind = \"lstm\"\nhidden_size = 6\n"
               "[data.train]\nkind = \"text_table\"\npath = \"texts.csv\"\ncontext = 12\n"
               "tokenizer = \"tokenizer/own\"\n[batch]\nglobal_batch = 2\n[precision]\nmode = "
               "\"fp32\"\n");
  expect_code("run mine --quiet", 0, {});
  EXPECT_EQ(read_file(at("mine/tokenizer/own/vocab.txt")), vocabulary);
  EXPECT_EQ(read_file(at("mine/tokenizer/notes.txt")), "notes\n");
}

TEST_F(GoingOn, rate_clip_and_precision_change_where_they_are_asked_for_and_nowhere_else) {
  stop_after("out", 3);
  const std::string other = "optimizer.learning_rate: 0.001 → 0.01";
  folder_.file("edited.toml", read_file(at("run.toml")) + "[optimizer]\nlearning_rate = 0.01\n");
  expect_code("run edited.toml --quiet --out out", 2,
              {"another config (" + other, "--set optimizer.learning_rate=0.01"});
  expect_code(
      "run out --set optimizer.learning_rate=0.01 --set clip.norm=0.5 --set precision.mode=bf16 "
      "--set run.stop_after=1",
      0, {"optimizer.learning_rate is 0.01 after step 3, 0.001 until then"});
  const auto lines = log("out");
  const auto changed = [&](const std::string& key) {
    return std::find_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.contains("changed") && line["changed"].contains(key);
    });
  };
  ASSERT_NE(changed("optimizer.learning_rate"), lines.end());
  EXPECT_EQ((*changed("optimizer.learning_rate"))["changed"]["optimizer.learning_rate"]["now"],
            0.01);
  EXPECT_EQ((*changed("clip.norm"))["step"], 3);
  EXPECT_EQ((*changed("precision.mode"))["changed"]["precision.mode"]["before"], "fp32");
  EXPECT_EQ(last_attempt("out")["learning_rate"], 0.01);
  TANREN_EXPECT_CONTAINS(read_file(at("out") / "plan.txt"), "changed at step 3: 0.001 → 0.01");
  TANREN_EXPECT_CONTAINS(read_file(at("out") / "config.toml"), "learning_rate = 0.01");
  // Other keys that define the run still cannot change.
  expect_code("run out --quiet --set optimizer.weight_decay=0.5", 2, {"another config"});
  expect_code("run out --quiet --set precision.mode=fp64", 2,
              {"another config (precision.mode: \"bf16\" → \"fp64\")"});
}

TEST_F(GoingOn, a_change_that_was_asked_for_lasts_whatever_starts_the_run_next) {
  ASSERT_EQ(tanren("run run.toml --quiet --out low --set run.stop_after=3").code, 0);
  ASSERT_EQ(tanren("run low --quiet --set optimizer.learning_rate=0.01").code, 0);
  const std::string whole = plain_log("low");
  stop_after("out", 3);
  // As if killed after the change and before the next checkpoint: the change is applied only once.
  const std::string ask = " --quiet --set optimizer.learning_rate=0.01 --set run.stop_after=";
  ASSERT_EQ(tanren("run out" + ask + "2").code, 0);
  fs::remove_all(at("out/checkpoints/step-5"));
  expect_code("plan out", 0, {"changed at step 3: 0.001 → 0.01"});
  expect_code("run out --quiet --set run.stop_after=1", 0, {});
  const auto result = tanren("run run.toml --quiet --out out --set run.stop_after=1");
  EXPECT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output,
                         "[run] optimizer.learning_rate stays 0.01, as --set asked before");
  expect_code("run out --quiet", 0, {});
  EXPECT_EQ(plain_log("out"), whole);
  EXPECT_EQ(weights("out"), weights("low"));
  TANREN_EXPECT_CONTAINS(read_file(at("out") / "plan.txt"), "changed at step 3: 0.001 → 0.01");
}

TEST_F(GoingOn, a_change_can_be_taken_back) {
  stop_after("out", 2);
  ASSERT_EQ(tanren("run out --quiet --set clip.norm=0.1 --set run.stop_after=2").code, 0);
  expect_code("run run.toml --quiet --out out --set clip.norm=0 --set run.stop_after=2", 0, {});
  TANREN_EXPECT_CONTAINS(read_file(at("out") / "plan.txt"),
                         "changed at step 2: 0.0 → 0.1; at step 4: 0.1 → 0.0");
}

// Changes every precision to every other, and to a schedule with state and back.
TEST_F(GoingOn, precision_and_schedule_change_from_any_to_any) {
  for (const std::string from : {"fp32", "bf16", "fp16"}) {
    for (const std::string to : {"fp32", "bf16", "fp16"}) {
      if (from == to) continue;
      const std::string out = from + "-" + to;
      stop_after(out, 3, "--set precision.mode=" + from);
      expect_code("run " + out + " --quiet --set precision.mode=" + to, 0, {});
      const double scale = last_attempt(out)["loss_scale"];
      EXPECT_EQ(scale > 1, to == "fp16") << out;
    }
  }
  stop_after("plateau", 3);
  const std::string plateau =
      " --quiet --set schedule.kind=reduce_on_plateau --set run.stop_after=3";
  expect_code("run plateau" + plateau, 0, {});
  expect_code("run plateau --quiet --set schedule.kind=constant", 0, {});
}

TEST_F(GoingOn, a_start_holds_the_folder_before_it_chooses_its_checkpoint) {
  const std::string program = TANREN_BINARY, out = at("out").string();
  const std::vector<std::string> train = {program, "run",   at("run.toml").string(), "--out",
                                          out,     "--set", "run.steps=1000000",     "--quiet"};
  Child first(train);
  const auto lines = [&] {
    if (!fs::exists(at("out") / "log.jsonl")) return std::ptrdiff_t{0};
    const std::string text = read_file(at("out") / "log.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (lines() < 5 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
  ASSERT_GE(lines(), 5);
  // If the second start got as far as its data, it would wait for them until the first has saved
  // and ended.
  const std::string pipe = at("train.csv").string();
  fs::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::vector<std::string> again = train;
  again.insert(again.end(), {"--set", "run.stop_after=1"});
  Child second(again);
  int data = -1;
  while (std::chrono::steady_clock::now() < end) {
    data = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (data >= 0 || second.ended(20ms) >= 0) break;
  }
  first.signal(SIGTERM);
  ASSERT_EQ(first.ended(kPatience), 130) << first.text();
  const auto before = lines();
  if (data >= 0) {
    const std::string text = rows(24);
    EXPECT_EQ(::write(data, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(data);
  }
  EXPECT_EQ(second.ended(kPatience), 2) << second.text();
  TANREN_EXPECT_CONTAINS(second.text(), "in use by another process");
  EXPECT_GE(lines(), before) << "the log was cut";
}

TEST_F(GoingOn, a_start_that_fails_before_it_begins_leaves_no_trace) {
  stop_after("out", 2);
  const std::string config = read_file(at("out/config.toml")), log = read_file(at("out/log.jsonl"));
  const std::string plan = read_file(at("out/plan.txt"));
  expect_code("run out --quiet --set data.train.path=none.csv --set clip.norm=1", 2, {"none.csv"});
  EXPECT_EQ(read_file(at("out/config.toml")), config);
  EXPECT_EQ(read_file(at("out/log.jsonl")), log);
  EXPECT_EQ(read_file(at("out/plan.txt")), plan);
  expect_code("run run.toml --quiet --out a/b/c --set data.train.path=none.csv", 2, {"none.csv"});
  EXPECT_FALSE(fs::exists(at("a")));
  fs::create_directory(at("empty"));
  expect_code("run run.toml --quiet --out empty --set data.train.path=none.csv", 2, {"none.csv"});
  EXPECT_TRUE(fs::exists(at("empty")));
  EXPECT_FALSE(fs::exists(at("empty/lock")));
}

}  // namespace
}  // namespace tanren::testing
