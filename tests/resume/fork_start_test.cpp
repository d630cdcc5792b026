// The start of a fork: its first start chooses the step and keeps it. Some places are refused, and
// the refusals offer commands.
#include "tests/support/fork_run.h"

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

class ForkStart : public ForkRun {
 protected:
  // The command that a refusal offers after `words`; empty if it offers none.
  std::string offered(const std::string& arguments, const std::string& words) const {
    const auto refused = tanren(arguments);
    EXPECT_EQ(refused.code, 2) << arguments << "\n" << refused.output;
    const size_t begin = refused.output.find(words + "tanren ");
    if (begin == std::string::npos) return "";
    const std::string command = refused.output.substr(begin + words.size() + 7);
    return command.substr(0, command.find('\n'));
  }
  static constexpr const char* kOffer = "; or fork it with these changes: ";
};

TEST_F(ForkStart, of_a_step_folder_needs_the_flag_since_a_run_in_there_would_ruin_it) {
  stop_after("a", 3);
  const auto before = files("a");
  const std::string step = "a/checkpoints/step-3";
  for (const std::string& arguments :
       {"run " + step + " --quiet", "run " + step + " --quiet --out b", "plan " + step,
        "run run.toml --quiet --out " + step}) {
    expect_refused(arguments, {step + " is a checkpoint and no run folder",
                               "tanren run " + step + " --fork --out NEW"});
  }
  EXPECT_EQ(files("a"), before);
  EXPECT_FALSE(fs::exists(at("b")));
}

TEST_F(ForkStart, of_a_step_folder_does_not_stop_where_the_other_start_did) {
  stop_after("a", 3, "--set checkpoint.every=2");
  expect_code("run a/checkpoints/step-2 --quiet --fork --out b", 0, {});
  EXPECT_EQ(last_attempt("b")["step"], 8);
  expect_code("run a/checkpoints/step-2 --quiet --fork --out c --set run.stop_after=1", 0, {});
  EXPECT_EQ(last_attempt("c")["step"], 3);
}

TEST_F(ForkStart, stays_at_the_step_that_the_first_start_chose_until_that_is_gone) {
  stop_after("a", 2, "--set checkpoint.keep=9 --set metrics.tensorboard=true");
  const std::string fork = "run a --quiet --fork --out b --set run.stop_after=3";
  expect_code(fork, 0, {});
  fs::remove_all(at("b/checkpoints"));                         // as after a kill
  expect_code("run a --quiet --set run.stop_after=2", 0, {});  // the other run is at step 4
  TANREN_EXPECT_CONTAINS(read_file(at("b/config.toml")), "a/checkpoints/step-2\"");
  expect_code(fork, 0, {});
  EXPECT_EQ(log("b").front()["attempt"], 3);
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_from"), "a/checkpoints/step-2");
  fs::remove_all(at("b/checkpoints"));
  fs::remove_all(at("a/checkpoints/step-2"));
  expect_code("run b --quiet --set run.stop_after=1", 0, {"step-2 is gone", "step-4"});
  EXPECT_EQ(log("b").front()["attempt"], 5);  // the log has no earlier steps
  EXPECT_EQ(std::distance(fs::directory_iterator(at("b/tensorboard")), {}), 1);
}

TEST_F(ForkStart, of_a_run_that_was_moved_before_it_saved_anything_is_of_the_same_step) {
  stop_after("a", 3, "--set checkpoint.every=2");
  expect_code("run a/checkpoints/step-2 --quiet --fork --out b --set run.stop_after=1", 0, {});
  fs::remove_all(at("b/checkpoints"));
  fs::create_directories(at("moved"));
  fs::rename(at("a"), at("moved/a"));
  expect_code("run moved/a --quiet --fork --out b --set run.stop_after=1", 0, {});
  EXPECT_EQ(log("b").front()["attempt"], 3);
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_from"), "moved/a/checkpoints/step-2");
}

// exp1/base and exp2/base have the same name, so one could be taken for the other.
TEST_F(ForkStart, of_another_run_of_the_same_name_is_refused_while_both_are_there) {
  stop_after("exp1/base", 3);
  stop_after("exp2/base", 2);
  const std::string rest = " --quiet --fork --out b --set run.stop_after=1";
  expect_code("run exp1/base" + rest, 0, {});
  const auto before = files("b");
  const std::vector<std::string> told = {"[run] b is a fork of ", "/exp1/base, and not of ",
                                         "/exp2/base; name another folder with --out"};
  expect_refused("run exp2/base" + rest, told);
  expect_refused("plan exp2/base --fork --out b", told);
  expect_refused("run b --quiet --set run.fork_from=exp2/base", told);
  EXPECT_EQ(files("b"), before);
  fs::remove_all(at("b/checkpoints"));
  expect_refused("run exp2/base" + rest, told);
  expect_code("run exp1/base" + rest, 0, {});
  fs::remove_all(at("exp1"));  // as if it had been moved
  expect_code("run exp2/base" + rest, 0, {});
  EXPECT_EQ(last_attempt("b")["attempt"], 5);
}

TEST_F(ForkStart, of_the_best_checkpoint_or_through_a_link_goes_on_by_the_same_command) {
  stop_after("a", 4,
             "--set evaluate.every=2 --set checkpoint.every=1 --set checkpoint.best=1 "
             "--set checkpoint.keep=9");
  fs::create_directory_symlink("a", at("latest"));
  fs::rename(at("a/checkpoints"), at("disk"));
  fs::create_directory_symlink(at("disk"), at("a/checkpoints"));
  const fs::path best = at("a/checkpoints/best");
  const fs::path step = fs::read_symlink(best);
  const int first = std::stoi(step.string().substr(step.string().find('-') + 1)) + 1;
  const std::string rest = " --quiet --set run.stop_after=1 --fork --out ";
  const std::vector<std::pair<std::string, int>> cases = {
      {"a/checkpoints/best", first}, {"latest", 5}, {"latest/checkpoints/best", first}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [from, begin] = cases[i];
    const std::string out = "b" + std::to_string(i);
    std::string command = "run ";
    command.append(from).append(rest).append(out);
    expect_code(command, 0, {});
    expect_code(command, 0, {});
    EXPECT_EQ(last_attempt(out)["attempt"], begin + 1) << from;
    fs::remove(best);
    fs::create_directory_symlink("step-1", best);  // the other run found a better one
    expect_code(command, 0, {});
    EXPECT_EQ(last_attempt(out)["attempt"], begin + 2) << from;
    fs::remove_all(at(out + "/checkpoints"));  // as after a kill: the step that was chosen stays
    expect_code(command, 0, {});
    EXPECT_EQ(last_attempt(out)["attempt"], begin) << from;
    fs::remove(best);
    fs::create_directory_symlink(step, best);
  }
  expect_refused("run a/checkpoints/best --quiet --fork --out a/b", {"in the folder of that run"});
  fs::remove_all(at("a"));
  for (size_t i = 0; i < cases.size(); ++i) {
    std::string command = "run ";
    command.append(cases[i].first).append(rest).append("b").append(std::to_string(i));
    expect_code(command, 0, {});
  }
}

TEST_F(ForkStart, of_a_step_that_was_asked_for_by_name_and_is_gone_takes_no_other) {
  stop_after("a", 3, "--set checkpoint.every=1 --set checkpoint.keep=9");
  const std::string step = "a/checkpoints/step-2";
  const std::string by_config =
      "run run.toml --quiet --out c --set run.stop_after=1 --set run.fork_from=" + step;
  expect_code("run " + step + " --quiet --fork --out b --set run.stop_after=1", 0, {});
  expect_code(by_config, 0, {});
  fs::remove_all(at("b/checkpoints"));  // as after a kill
  fs::remove_all(at("c/checkpoints"));
  fs::remove_all(at(step));
  const auto b = files("b"), c = files("c");
  const std::vector<std::string> told = {step + ": it is gone, and this run began with it"};
  expect_refused("run b --quiet", told);
  expect_refused("plan b", told);
  expect_refused("run a --quiet --fork --out b", told);
  expect_refused(by_config, told);
  EXPECT_EQ(files("b"), b);
  EXPECT_EQ(files("c"), c);
}

TEST_F(ForkStart, by_the_same_command_goes_on_when_the_other_run_is_gone_or_changed) {
  stop_after("a", 3);
  const std::string fork = "run a --quiet --fork --out b --set run.stop_after=1";
  expect_code(fork, 0, {});
  folder_.file("a/config.toml", "[run]\nsteps = ");
  expect_code(fork, 0, {});
  fs::remove_all(at("a"));
  expect_code(fork, 0, {});
  EXPECT_EQ(last_attempt("b")["attempt"], 6);
  expect_code("plan a --fork --out b", 0, {});
  expect_refused("run a --quiet --fork --out c", {"--fork needs a run folder"});
}

TEST_F(ForkStart, of_a_run_that_is_named_like_a_step_is_a_fork_of_its_newest) {
  stop_after("step-3", 2);
  expect_code("run step-3 --quiet --fork --out b --set run.stop_after=1", 0, {});
  EXPECT_EQ(log("b").front()["attempt"], 3);
}

TEST_F(ForkStart, into_the_other_runs_folder_is_refused_and_here_has_a_name) {
  stop_after("a", 3);
  const auto before = files("a");
  for (const char* out : {"a/b", "a/checkpoints/b", "./a/../a/b/c"}) {
    expect_refused("run a --quiet --fork --out " + std::string(out),
                   {"lies in the folder of that run", "--out"});
    expect_refused("plan a --fork --out " + std::string(out), {"lies in the folder of that run"});
  }
  EXPECT_EQ(files("a"), before);
  fs::create_directories(at("mine"));
  folder_.file("mine/notes.txt", "notes");
  expect_refused("plan a --fork --out mine", {"mine holds other files and no run"});
  fs::create_directories(at("here"));
  const auto here = shell(forked_tanren() + " run ../a --quiet --fork --out .", at("here"));
  EXPECT_EQ(here.code, 0) << here.output;
  TANREN_EXPECT_CONTAINS(read_file(at("here/config.toml")), "name = \"here\"");
}

TEST_F(ForkStart, is_offered_with_all_that_was_asked_for) {
  stop_after("out", 3);
  fs::create_directories(at("moved to"));
  fs::copy_file(at("train.csv"), at("moved to/train.csv"));
  const std::string command = offered(
      "run run.toml --quiet --out out --set optimizer.weight_decay=0.5 --set run.steps=10 "
      "--set 'data.train.path=moved to/train.csv' --set metrics.console_every=3 "
      "--set evaluate.every=5 --set model.activation=tanh",
      kOffer);
  for (const char* part :
       {"run out --fork --out out-fork --set ", "optimizer.weight_decay=0.5", "run.steps=10",
        "moved to/train.csv", "metrics.console_every=3", "evaluate.every=5", "model.activation="}) {
    TANREN_EXPECT_CONTAINS(command, part);
  }
  expect_code(command + " --quiet", 0, {});
  EXPECT_EQ(last_attempt("out-fork")["step"], 10);
  const std::string there =
      offered("run out --quiet --out 'a new' --set run.steps=9", "it there: ");
  TANREN_EXPECT_CONTAINS(there, "run out --fork --out 'a new' --set run.steps=9, or begin");
}

TEST_F(ForkStart, is_not_offered_where_it_would_be_refused) {
  stop_after("out", 3);
  const auto none = [&](const std::string& sets) {
    EXPECT_EQ(offered("run run.toml --quiet --out out " + sets, kOffer), "") << sets;
  };
  none("--set 'model.hidden=[9]'");
  EXPECT_EQ(offered("run out --quiet --out new --set 'model.hidden=[9]'", "it there: "), "");
  none("--set run.seed=4 --set run.steps=none --set run.epochs=2");
  none("--set run.steps=2 --set optimizer.weight_decay=0.5");
  folder_.file("other.csv", rows(20));
  none(
      "--set run.steps=none --set run.epochs=2 --set data.train.path=other.csv "
      "--set optimizer.weight_decay=0.5");
  const auto here =
      shell(forked_tanren() + " run . --quiet --set optimizer.weight_decay=0.5", at("out"));
  TANREN_EXPECT_CONTAINS(here.output, "tanren run . --fork --out /");
  TANREN_EXPECT_CONTAINS(here.output, "/out-fork --set ");
}

TEST_F(ForkStart, is_not_offered_of_a_run_at_its_end_until_more_is_asked_for) {
  const std::string decay = " --set optimizer.weight_decay=0.5";
  const std::string epochs =
      "run run.toml --quiet --out two --set run.steps=none --set run.epochs=";
  expect_code(epochs + "2", 0, {});
  EXPECT_EQ(offered(epochs + "2" + decay, kOffer), "");
  EXPECT_EQ(offered("run two --quiet --out new", "it there: "), "");
  EXPECT_NE(offered(epochs + "3" + decay, kOffer), "");
  const std::string early =
      "run run.toml --quiet --out early --set run.steps=20 --set evaluate.every=1 --set "
      "optimizer.learning_rate=1e-30 --set early_stop.patience=";
  expect_code(early + "1", 0, {});
  EXPECT_EQ(offered(early + "1" + decay, kOffer), "");
  EXPECT_EQ(offered("run early --quiet --out new", "it there: "), "");
  const std::string command = offered(early + "0" + decay, kOffer);
  ASSERT_NE(command, "");
  expect_code(command + " --quiet --set run.stop_after=1", 0, {});
}

TEST_F(ForkStart, of_evaluations_of_another_quantity_compares_anew_and_keeps_the_plateaus_rate) {
  stop_after("a", 3,
             "--set evaluate.every=1 --set schedule.kind=reduce_on_plateau --set "
             "schedule.patience=0 --set schedule.threshold=0.9 --set early_stop.patience=9");
  const auto first_rate = [&](const std::string& out, const std::string& sets) {
    expect_code("run a --quiet --fork --out " + out + " --set run.stop_after=1 " + sets, 0, {});
    return log(out).front()["learning_rate"].get<double>();
  };
  const double rate = first_rate("same", "--set schedule.mode=min");  // "auto" there
  EXPECT_LT(rate, 0.0005);
  TANREN_EXPECT_CONTAINS(plan_line("same", "fork_plateau"), "  taken ");
  TANREN_EXPECT_CONTAINS(plan_line("same", "fork_evaluations"), "  taken ");
  const auto attempts = [&] {  // the log may begin with the evaluation that is made again
    for (const auto& line : log("b")) {
      if (line.contains("attempt")) return line["learning_rate"].get<double>();
    }
    return 0.0;
  };
  expect_code("run a --quiet --fork --out b --set run.stop_after=1 --set model.label_smoothing=0.1",
              0, {});
  EXPECT_EQ(attempts(), rate);
  const std::string line = plan_line("b", "fork_plateau");
  TANREN_EXPECT_CONTAINS(line, "  in part ");
  TANREN_EXPECT_CONTAINS(line,
                         " of its peak, as there; the best value begins anew: they measure "
                         "something else: another model.label_smoothing");
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_evaluations"), "another model.label_smoothing");
}

// A resumed run may not change such a key either.
TEST_F(ForkStart, of_evaluation_data_that_are_read_in_another_way_compares_anew) {
  const std::string decides = "--set evaluate.every=1 --set early_stop.patience=9";
  stop_after("a", 3, decides);
  expect_code("run a --quiet --fork --out b --set data.eval.classes=0", 0, {});
  const std::string line = plan_line("b", "fork_evaluations");
  TANREN_EXPECT_CONTAINS(line, "  anew ");
  TANREN_EXPECT_CONTAINS(line, "another data.eval.classes");
  expect_code("run a --quiet --fork --out c --set metrics.console_every=3", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("c", "fork_evaluations"), "  taken ");
}

// The last batch of each epoch is a short one. As a search does with its best trial, the test forks
// with another rate and then forks the fork. Issue 29.
TEST_F(ForkStart, with_another_rate_goes_on_as_the_run_itself_would_at_that_rate) {
  stop_after("a", 3, "--set model.dropout=0.3");
  fs::copy(at("a"), at("same"), fs::copy_options::recursive);
  const std::string rate = " --quiet --set optimizer.learning_rate=0.0012";
  expect_code("run same" + rate, 0, {});
  expect_code("run run.toml --out b --set model.dropout=0.3 --set run.fork_from=a" + rate, 0, {});
  EXPECT_EQ(log_after("same", 3), plain_log("b"));
  EXPECT_FALSE(plain_log("b").empty());
  EXPECT_EQ(weights("b"), weights("same"));
}

TEST_F(ForkStart, of_an_unchanged_fork_goes_on_bitwise_and_keeps_best_checkpoints_of_its_own) {
  const std::string settings =
      "--set model.dropout=0.3 --set schedule.kind=cosine --set evaluate.every=2 --set "
      "checkpoint.best=4";
  ASSERT_EQ(tanren("run run.toml --quiet --out whole " + settings).code, 0);
  stop_after("a", 2, settings);
  expect_code("run a --quiet --fork --out b --set run.stop_after=2", 0, {});
  expect_code("run b --quiet --fork --out c", 0, {});
  EXPECT_EQ(log_after("whole", 4), plain_log("c"));
  EXPECT_FALSE(plain_log("c").empty());
  for (const std::string file : {"model.safetensors", "optimizer.safetensors"}) {
    const auto last = "/checkpoints/step-8/" + file;
    EXPECT_TRUE(read_file(at("c" + last)) == read_file(at("whole" + last))) << file;
  }
  const std::string state = read_file(at("c/checkpoints/step-8/state.json"));
  TANREN_EXPECT_CONTAINS(state, "best.1.step");
  EXPECT_FALSE(contains(state, "best.2.step")) << "of steps 6 and 8 alone: " << state;
}

TEST_F(ForkStart, shows_the_first_batch_of_its_own_place) {
  folder_.file("train.csv", rows(22));
  stop_after("a", 5, "--set data.last=keep");
  const std::string debug = " --set run.debug=true --set run.stop_after=1";
  for (const std::string arguments : {"run a --fork --out b", "run a"}) {
    const auto result = tanren(arguments + debug);
    EXPECT_EQ(result.code, 0) << result.output;
    TANREN_EXPECT_CONTAINS(result.output, "\n  2 samples");
  }
}

}  // namespace
}  // namespace tanren::testing
