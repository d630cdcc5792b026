// A fork: a new run that continues from another run's checkpoint with its own config (issue 26).
// With an unchanged config it continues bitwise as the other run does. Differences are refused or
// reported. The other run's folder is only read.
#include "tests/support/fork_run.h"
#include "tests/support/run_log.h"

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

class Fork : public ForkRun {};

TEST_F(Fork, of_what_is_no_run_with_a_checkpoint_is_refused_and_makes_nothing) {
  stop_after("a", 3, "--set checkpoint.every=2");
  fs::create_directories(at("young"));
  fs::copy_file(at("a/config.toml"), at("young/config.toml"));
  fs::create_directories(at("other/checkpoints/step-3"));
  folder_.file("file", "x");
  const auto before = files("a");
  expect_refused("run a --quiet --fork", {"[cli] a fork is a new run; name its folder with --out"});
  expect_refused("run run.toml --quiet --fork --out b", {"[cli] --fork needs a run folder"});
  expect_refused("run none --quiet --fork --out b", {"--fork needs a run folder", "not none"});
  expect_refused("run young --quiet --fork --out b", {"young: it has no complete checkpoint; let"});
  const std::string from = "run run.toml --quiet --out b --set run.fork_from=";
  expect_refused(from + "none",
                 {"[run] fork_from ", "/none: it does not exist; name a run folder"});
  expect_refused(from + "file", {"/file: it is no folder"});
  expect_refused(from + "other", {"/other: it is no run folder (no config.toml in it)"});
  expect_refused(from + "other/checkpoints/step-3", {"its save was never completed (no COMPLETE"});
  expect_refused(from + "a --set model.init_from=a", {"drop one"});
  expect_refused("run a --quiet --fork --out b --set model.init_from=a",
                 {"run.fork_from and model.init_from both give the weights; drop one"});
  EXPECT_FALSE(fs::exists(at("b")));
  EXPECT_EQ(files("a"), before);
}

TEST_F(Fork, into_its_own_folder_or_that_of_another_run_is_refused_and_changes_neither) {
  stop_after("a", 3);
  stop_after("other", 2);
  fs::create_directories(at("mine"));
  folder_.file("mine/notes.txt", "notes");
  const auto a = files("a"), other = files("other");
  expect_refused("run a --quiet --fork --out a", {"it is the folder of this run itself", "--out"});
  expect_refused("run a/checkpoints/step-3 --quiet --fork --out ./a/", {"of this run itself"});
  expect_refused("run a --quiet --fork --out other",
                 {"[run] other holds a run already, which is no fork of ", "with --out"});
  expect_refused("plan a --quiet --fork --out other", {"other holds a run already"});
  expect_refused("run a --quiet --fork --out mine", {"mine holds other files and no run"});
  EXPECT_EQ(files("a"), a);
  EXPECT_EQ(files("other"), other);
}

TEST_F(Fork, of_a_half_written_or_damaged_checkpoint_takes_the_one_before_or_is_refused) {
  stop_after("a", 3, "--set checkpoint.every=2");
  fs::remove(at("a/checkpoints/step-3/COMPLETE"));
  expect_refused("run a/checkpoints/step-3 --quiet --fork --out b",
                 {"its save was never completed"});
  expect_code("run a --quiet --fork --out b --set run.stop_after=1", 0, {});
  EXPECT_EQ(log("b").front()["attempt"], 3);
  const auto model = at("a/checkpoints/step-2/model.safetensors");
  fs::resize_file(model, fs::file_size(model) - 1);
  expect_refused("run a --quiet --fork --out c", {"model.safetensors has ", "manifest"});
  EXPECT_FALSE(fs::exists(at("c")));
}

TEST_F(Fork, of_another_model_is_refused_with_what_fits_and_what_does_not) {
  stop_after("a", 3);
  expect_refused("run a --quiet --fork --out b --set 'model.hidden=[9]'",
                 {"another model: 1 of 4 tensors fit", "3 of another shape (",
                  "hidden.0.weight [8, 2] there, [9, 2] here", "model.init_from="});
  expect_refused("run a --quiet --fork --out b --set 'model.hidden=[8,8,8,8,8]'",
                 {"4 of 12 tensors fit", "8 only here (hidden.1.weight [8, 8]", "and 4 more)"});
  expect_refused("plan a --quiet --fork --out b --set 'model.hidden=[]'",
                 {"2 only there (hidden.0.weight [8, 2], hidden.0.bias [8])"});
  EXPECT_FALSE(fs::exists(at("b")));
}

// Each setting tests another part of the state: scale, averages, dropout, packed and factored
// moments, slices.
TEST_F(Fork, unchanged_goes_on_bitwise_as_the_other_run_does) {
  const std::vector<std::string> settings = {
      "--set model.dropout=0.3 --set schedule.kind=cosine --set clip.norm=1",
      "--set precision.mode=fp16 --set precision.initial_scale=4294967296 --set "
      "precision.growth_interval=2",
      "--set average.kind=ema --set optimizer.kind=sgd --set optimizer.momentum=0.9",
      "--set optimizer.state=8bit",
      "--set optimizer.kind=adafactor",
      "--set optimizer.kind=muon",
      "--set precision.level=O2 --set precision.mode=bf16",
      "--set early_stop.patience=3 --set evaluate.every=1 --set schedule.kind=reduce_on_plateau "
      "--set schedule.patience=0",
      "--set parallel.ranks=threads --set parallel.replicas=2 --set parallel.zero=1",
  };
  for (size_t i = 0; i < settings.size(); ++i) {
    SCOPED_TRACE(settings[i]);
    const std::string n = std::to_string(i), whole = "whole" + n, a = "a" + n, b = "b" + n;
    ASSERT_EQ(tanren("run run.toml --quiet --out " + whole + " " + settings[i]).code, 0);
    stop_after(a, 3, settings[i]);
    const auto before = files(a);
    const auto attempt = last_attempt(a)["attempt"].get<int>();
    expect_code("run " + a + " --quiet --fork --out " + b, 0, {});
    EXPECT_EQ(log_after(whole, attempt), plain_log(b));
    EXPECT_FALSE(plain_log(b).empty());
    EXPECT_EQ(weights(b), weights(whole));
    EXPECT_EQ(files(a), before) << "the other run was changed";
    TANREN_EXPECT_CONTAINS(plan_line(b, "fork_optimizer"), "  taken ");
    TANREN_EXPECT_CONTAINS(plan_line(b, "fork_data"), "  taken ");
  }
}

// The state of two ranks moves to one rank, and back.
TEST_F(Fork, goes_on_with_another_number_of_ranks_that_share_the_state_or_not) {
  const std::string exact = "--set precision.mode=fp64 ";
  const std::string shared =
      "--set parallel.ranks=threads --set parallel.replicas=2 --set parallel.zero=2";
  ASSERT_EQ(tanren("run run.toml --quiet --out whole " + exact).code, 0);
  stop_after("two", 3, exact + shared);
  stop_after("one", 3, exact);
  expect_code(
      "run two --quiet --fork --out b --set parallel.ranks=processes --set "
      "parallel.replicas=0 --set parallel.zero=0",
      0, {});
  expect_code("run one --quiet --fork --out c " + shared, 0, {});
  for (const char* out : {"b", "c"}) {
    const auto all = read_log(at("whole")), own = read_log(at(out));
    ASSERT_LT(own.size(), all.size());
    for (size_t i = 1; i <= own.size(); ++i) {
      expect_same_json(all[all.size() - i], own[own.size() - i], out + std::to_string(i));
    }
  }
}

TEST_F(Fork, resumes_like_any_run_and_never_reads_the_other_run_again) {
  ASSERT_EQ(tanren("run run.toml --quiet --out whole").code, 0);
  stop_after("a", 3);
  const std::string fork = "run a --quiet --fork --out b --set run.stop_after=2";
  expect_code(fork, 0, {});
  expect_code("run a --quiet --fork --out b --set run.stop_after=1", 0, {});  // the same command
  EXPECT_EQ(last_attempt("b")["attempt"], 6);
  fs::remove_all(at("a"));
  expect_code("plan b", 0, {"fork_from", "step 3"});
  expect_code("run b --quiet", 0, {});
  EXPECT_EQ(plain_log("b"), log_after("whole", 3));
  EXPECT_EQ(weights("b"), weights("whole"));
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_from"), "a/checkpoints/step-3");
  expect_code("run b --quiet", 2, {"is finished"});
}

// Until the fork has saved a checkpoint, it needs the one that it started from.
TEST_F(Fork, that_has_saved_nothing_begins_again_or_says_what_is_missing) {
  stop_after("a", 3);
  expect_code("run a --quiet --fork --out b --set run.stop_after=1", 0, {});
  fs::remove_all(at("b/checkpoints"));  // as after a kill
  expect_code("run b --set run.stop_after=1", 0, {"beginning again", "fork_from step 3"});
  EXPECT_EQ(last_attempt("b")["attempt"], 4);
  fs::remove_all(at("b/checkpoints"));
  fs::remove_all(at("a"));
  expect_refused("run b --quiet", {"/a/checkpoints/step-3: it does not exist"});
}

TEST_F(Fork, says_in_the_plan_and_on_the_terminal_what_it_takes_and_what_was_changed) {
  stop_after("a", 3, "--set checkpoint.every=2");
  const std::string fork = "a --fork --out b --set optimizer.learning_rate=0.01 --set clip.norm=1";
  const std::vector<std::string> told = {
      "fork_from",
      "step 3",
      "4 tensors of the model; steps and schedule go on from there",
      "changed: optimizer.learning_rate 0.001 → 0.01, clip.norm 0.0 → 1.0",
      "state of 4 of 4 trained tensors",
      "epoch 1, 12 of its samples are consumed"};
  expect_code("plan " + fork, 0, told);
  EXPECT_FALSE(fs::exists(at("b")));
  expect_code("run " + fork, 0, told);
  const auto lines = log("b");
  EXPECT_EQ(lines.front()["step"], 4);
  EXPECT_EQ(lines.front()["learning_rate"], 0.01);
  EXPECT_TRUE(std::none_of(lines.begin(), lines.end(),
                           [](const auto& line) { return line.contains("changed"); }));
  const std::string toml = read_file(at("b/config.toml"));
  TANREN_EXPECT_CONTAINS(toml, "name = \"b\"");
  TANREN_EXPECT_CONTAINS(toml, "learning_rate = 0.01");
  expect_code("run a/checkpoints/step-2 --quiet --fork --out c --set run.stop_after=1", 0, {});
  EXPECT_EQ(log("c").front()["step"], 3);
}

// Issue 26: only six keys were named, and the others were only counted.
TEST_F(Fork, names_every_key_that_was_changed) {
  stop_after("a", 3);
  const auto result = tanren(
      "plan a --fork --out b --set optimizer.learning_rate=0.01 --set optimizer.weight_decay=0.1 "
      "--set optimizer.beta1=0.8 --set optimizer.beta2=0.99 --set optimizer.eps=1e-7 "
      "--set model.label_smoothing=0.1 --set clip.norm=1");
  EXPECT_EQ(result.code, 0) << result.output;
  for (const char* part :
       {"; changed: ", "model.label_smoothing 0.0 → 0.1", "optimizer.learning_rate 0.001 → 0.01",
        "optimizer.weight_decay ", "optimizer.beta1 0.9 → 0.8", "optimizer.beta2 not set → 0.99",
        "optimizer.eps ", "clip.norm 0.0 → 1.0"}) {
    TANREN_EXPECT_CONTAINS(result.output, part);
  }
}

TEST_F(Fork, begins_the_state_of_another_optimizer_anew_and_keeps_adams_for_adamw) {
  stop_after("a", 3);
  const auto line = [&](const std::string& out, const std::string& sets) {
    expect_code("run a --quiet --fork --out " + out + " " + sets, 0, {});
    return plan_line(out, "fork_optimizer");
  };
  const std::string sgd = line("sgd", "--set optimizer.kind=sgd");
  TANREN_EXPECT_CONTAINS(sgd, "  anew ");
  TANREN_EXPECT_CONTAINS(sgd, "begins anew: adamw there, sgd here");
  TANREN_EXPECT_CONTAINS(line("adam", "--set optimizer.kind=adam"), "state of 4 of 4 trained");
  TANREN_EXPECT_CONTAINS(line("max", "--set optimizer.amsgrad=true"),
                         "it kept exp_avg, exp_avg_sq there and keeps exp_avg, exp_avg_sq, "
                         "max_exp_avg_sq here");
  TANREN_EXPECT_CONTAINS(line("packed", "--set optimizer.state=8bit"), "state of 4 of 4 trained");
  expect_code(
      "run packed/checkpoints/step-8 --quiet --fork --out wide --set optimizer.state=fp32 "
      "--set run.steps=9",
      0, {});
  TANREN_EXPECT_CONTAINS(plan_line("wide", "fork_optimizer"), "state of 4 of 4 trained");
  EXPECT_EQ(last_attempt("sgd")["step"], 8);
}

// A rank's part of the state may begin inside a block of codes.
TEST_F(Fork, of_packed_state_unpacks_it_for_ranks_that_share_it) {
  stop_after("a", 3, "--set 'model.hidden=[80, 80]' --set optimizer.state=8bit");
  const auto result = tanren(
      "run a --fork --out b --set optimizer.state=fp32 --set parallel.ranks=threads "
      "--set parallel.replicas=3 --set parallel.zero=1");
  EXPECT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "state of 6 of 6 trained tensors");
  EXPECT_EQ(result.output.find("does not fit"), std::string::npos) << result.output;
}

TEST_F(Fork, takes_the_state_of_what_was_trained_there_and_begins_the_rest_anew) {
  stop_after("a", 3, "--set 'model.freeze=[hidden.*]'");
  expect_code("run a --quiet --fork --out b --set 'model.freeze=[]'", 0, {});
  const std::string line = plan_line("b", "fork_optimizer");
  TANREN_EXPECT_CONTAINS(line, "  in part ");
  TANREN_EXPECT_CONTAINS(line,
                         "state of 2 of 4 trained tensors, the others were not trained there");
  EXPECT_EQ(last_attempt("b")["step"], 8);
  // An unfreeze at a step before the fork also takes effect.
  expect_code(
      "run a --quiet --fork --out c --set 'model.unfreeze=[{parameters = [\"hidden.*\"], "
      "step = 2}]'",
      0, {});
  TANREN_EXPECT_CONTAINS(plan_line("c", "fork_optimizer"), "state of 2 of 4 trained tensors");
  EXPECT_EQ(log_after("c", 3), log_after("b", 3));
}

TEST_F(Fork, that_reads_its_table_in_another_way_says_so) {
  stop_after("a", 3);
  expect_code("run a --quiet --fork --out b --set data.train.standardize=true", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_table"),
                         "columns and what was measured are not those there");
  expect_code("run a --quiet --fork --out c --set optimizer.learning_rate=0.02", 0, {});
  EXPECT_EQ(plan_line("c", "fork_table"), "");
}

// Issue 26: only tables of numbers reported other classes.
TEST_F(Fork, whose_texts_have_other_classes_says_so) {
  folder_.file("texts.csv", "text,label\na b,x\nc,y\nb c,y\na,x\n");
  folder_.file("text.toml",
               "[run]\nsteps = 6\nthreads = 1\n[model]\nkind = \"lstm\"\nhidden_size = 6\n"
               "[data.train]\nkind = \"text_table\"\npath = \"texts.csv\"\ncontext = 12\n"
               "tokenizer = \"" +
                   std::string(TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/uncased.json") +
                   "\"\n[batch]\nglobal_batch = 2\n[precision]\nmode = \"fp32\"\n");
  expect_code("run text.toml --quiet --out a --set run.stop_after=2", 0, {});
  expect_code("run a --quiet --fork --out same --set optimizer.learning_rate=0.02", 0, {});
  EXPECT_EQ(plan_line("same", "fork_table"), "");
  folder_.file("texts.csv", "text,label\na b,z\nc,y\nb c,y\na,z\n");
  expect_code("run a --quiet --fork --out b", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_table"), "class names are not those there");
}

TEST_F(Fork, begins_other_data_at_their_start_and_asks_for_a_length_in_steps) {
  ASSERT_EQ(tanren("run run.toml --quiet --out a --set run.stop_after=3 --set run.steps=none --set "
                   "run.epochs=2")
                .code,
            0);
  folder_.file("other.csv", rows(20));
  const std::string fork = "run a --quiet --fork --out b --set data.train.path=other.csv";
  const auto refused = tanren(fork);
  EXPECT_EQ(refused.code, 2) << refused.output;
  TANREN_EXPECT_CONTAINS(refused.output, "other data: samples of data.train");
  const std::string ways = "--set run.epochs=none --set run.steps=13";  // 3 steps, two epochs of 5
  TANREN_EXPECT_CONTAINS(refused.output, ways);
  expect_code(fork + " " + ways, 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_data"), "from the first epoch: other data");
  const auto lines = log("b");
  EXPECT_EQ(lines.front()["step"], 4);
  EXPECT_EQ(lines.front()["epoch"], 0);
  EXPECT_EQ(last_attempt("b")["step"], 13);
  const auto batch = tanren("run a --quiet --fork --out c --set batch.global_batch=6");
  TANREN_EXPECT_CONTAINS(batch.output, "another batch.global_batch");
  TANREN_EXPECT_CONTAINS(batch.output, "run.steps=9");  // of the epochs' 8 batches of 6, 2 are used
  expect_code(
      "run a --quiet --fork --out c --set batch.global_batch=6 --set run.epochs=none "
      "--set run.steps=9",
      0, {});
  TANREN_EXPECT_CONTAINS(plan_line("c", "fork_data"), "epoch 1, 12 of its samples are consumed");
  expect_code(
      "run a --quiet --fork --out d --set run.seed=8 --set run.epochs=none "
      "--set run.steps=9",
      0, {});
  TANREN_EXPECT_CONTAINS(plan_line("d", "fork_data"), "another run.seed");
}

// Steps on the data before the fork are not part of the fork's own epochs.
TEST_F(Fork, of_a_fork_whose_data_began_anew_asks_for_a_length_in_steps) {
  stop_after("a", 3);
  folder_.file("other.csv", rows(20));  // an epoch has 5 batches
  expect_code(
      "run a --quiet --fork --out b --set data.train.path=other.csv --set run.steps=20 "
      "--set run.stop_after=7",
      0, {});
  const std::string fork = "run b --quiet --fork --out c ";
  expect_refused(fork + "--set run.steps=none --set run.epochs=3",
                 {"its 10 steps and run.epochs do not go together (it is a fork, and 7 of its 10 "
                  "batches are of its own epochs)",
                  "--set run.epochs=none --set run.steps=18"});  // 8 of 15 batches are left
  EXPECT_FALSE(fs::exists(at("c")));
  expect_code(fork + "--set run.steps=18", 0, {});
  EXPECT_EQ(last_attempt("c")["step"], 18);
}

TEST_F(Fork, of_a_run_at_its_end_wants_more_steps_or_patience) {
  ASSERT_EQ(tanren("run run.toml --quiet --out a").code, 0);
  expect_refused("run a --quiet --fork --out b",
                 {"after its step 8 the run is at its end (run.steps = 8)", "raise run.steps"});
  EXPECT_FALSE(fs::exists(at("b")));
  expect_code("run a --quiet --fork --out b --set run.steps=10", 0, {});
  EXPECT_EQ(last_attempt("b")["step"], 10);
  const std::string stops =
      "--set evaluate.every=1 --set early_stop.patience=1 --set optimizer.learning_rate=1e-30";
  ASSERT_EQ(tanren("run run.toml --quiet --out early " + stops).code, 0);
  expect_refused("run early --quiet --fork --out c --set run.steps=20",
                 {"the run ended early (loss has not improved", "raise early_stop.patience"});
  expect_code("run early --quiet --fork --out c --set early_stop.patience=0", 0, {});
}

TEST_F(Fork, of_a_run_with_averages_or_best_checkpoints_says_what_begins_anew) {
  const std::string best = "--set evaluate.every=1 --set checkpoint.best=1 --set average.kind=ema";
  stop_after("a", 3, best);
  expect_code("run a --quiet --fork --out b", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_average"), "ema goes on");
  TANREN_EXPECT_CONTAINS(plan_line("b", "fork_evaluations"), "the best so far stay with their run");
  EXPECT_TRUE(fs::exists(at("b/checkpoints/best/COMPLETE")));
  expect_code("run a --quiet --fork --out c --set average.kind=swa --set average.start=1", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("c", "fork_average"), "ema there, swa here");
  expect_code("run a --quiet --fork --out d --set average.kind=none", 0, {});
  EXPECT_EQ(plan_line("d", "fork_average"), "");
}

TEST_F(Fork, of_a_run_that_began_with_weights_leaves_these_out) {
  stop_after("first", 2);
  stop_after("a", 3, "--set model.init_from=first --set 'model.init_skip=[head.*]'");
  fs::remove_all(at("first"));
  expect_code("run a --quiet --fork --out b", 0, {});
  expect_code("run b/checkpoints/step-8 --quiet --fork --out c --set run.steps=9", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("c", "fork_from"), "b/checkpoints/step-8");
}

TEST_F(Fork, is_what_a_refused_change_is_offered_and_the_command_works) {
  stop_after("out", 3);
  const auto refused = tanren(
      "run run.toml --quiet --out out --set optimizer.weight_decay=0.5 --set "
      "'model.activation=tanh'");
  EXPECT_EQ(refused.code, 2) << refused.output;
  const std::string offer = "; or fork it with these changes: tanren ";
  const size_t begin = refused.output.find(offer);
  ASSERT_NE(begin, std::string::npos) << refused.output;
  const std::string command = refused.output.substr(begin + offer.size());
  TANREN_EXPECT_CONTAINS(command, "run out --fork --out out-fork --set ");
  expect_code(command.substr(0, command.find('\n')) + " --quiet", 0, {});
  TANREN_EXPECT_CONTAINS(plan_line("out-fork", "fork_from"), "optimizer.weight_decay");
  const auto again = tanren("run out --quiet --set optimizer.weight_decay=0.5");
  TANREN_EXPECT_CONTAINS(again.output, "--out out-fork-2 --set optimizer.weight_decay=0.5");
  expect_code("run out --quiet", 0, {});
}

TEST_F(Fork, by_processes_goes_on_as_one) {
  const std::string exact = "--set precision.mode=fp64 ";
  ASSERT_EQ(tanren("run run.toml --quiet --out whole " + exact).code, 0);
  stop_after("a", 3, exact);
  expect_code("launch -n 2 run a --quiet --fork --out b", 0, {});
  const auto all = read_log(at("whole")), own = read_log(at("b"));
  for (size_t i = 1; i <= own.size(); ++i) {
    expect_same_json(all[all.size() - i], own[own.size() - i], std::to_string(i));
  }
}

}  // namespace
}  // namespace tanren::testing
