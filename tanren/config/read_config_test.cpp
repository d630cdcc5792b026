#include "tanren/config/read_config.h"

#include "tanren/base/log.h"
#include "tanren/config/config_test_util.h"
#include "tanren/config/write_config.h"

#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::kGood;
using config_test::lines_of;
using config_test::parse;

TEST(ReadConfig, keys_of_absurd_depth_are_refused_before_they_are_parsed) {
  std::string deep = "a";
  for (int i = 0; i < 100'000; ++i) deep += ".a";
  expect_contains(error_of(deep + " = 1"), "absurdly deep");
  expect_contains(error_of("[" + deep + "]"), "absurdly deep");
  std::string lines;  // deep together: tables within tables
  for (int i = 0; i < 200; ++i) lines += "a = [\n{b.b.b.b.b.b.b.b.b";
  expect_contains(error_of(lines), "absurdly deep");
  expect_contains(error_of("a = " + std::string(100'000, '[')), "[config] run.toml:1");
  expect_contains(error_of(kGood, {"run.seed={" + deep + "=1}"}), "is no TOML");
  EXPECT_NO_THROW(parse(kGood, {"data.train.path=" + std::string(5000, '.')}));
}

TEST(ReadConfig, takes_a_renamed_key_by_its_old_name_and_not_by_both) {
  const std::string old =
      std::string(kGood) + "[parallel]\nmeeting = \"tcp://a:1024\"\npatience = 7\n";
  const RunConfig config = parse(old, {});
  EXPECT_EQ(config.parallel.rendezvous, "tcp://a:1024");
  EXPECT_EQ(config.parallel.timeout, 7);
  EXPECT_EQ(config.asked.count("parallel.timeout"), 1u);
  EXPECT_EQ(parse(kGood, {"parallel.data=threads"}).parallel.ranks, "threads");
  EXPECT_EQ(parse(old, {"parallel.timeout=8"}).parallel.timeout, 8);
  expect_contains(error_of(old + "timeout = 9\n"),
                  "parallel.patience is parallel.timeout by now, and both are given; keep "
                  "parallel.timeout");
  expect_contains(error_of(kGood, {"parallel.patience=0"}), "parallel.timeout is 0; it must lie");
}

TEST(ReadConfig, names_file_and_line_of_malformed_toml) {
  expect_contains(error_of("[=]\n"), "[config] run.toml: is no TOML");
  expect_contains(error_of(kGood, {"run.seed={=}"}), "must be a whole number");
  expect_contains(error_of("[run]\ncontex × 8 = 1\n"), "run.toml:2");
  expect_contains(error_of("[run]\nepochs = 2\n[model\n"), "run.toml:3");
  expect_contains(error_of("[run]\nepochs = 1\nepochs = 2\n"), "run.toml:3");
  expect_contains(error_of(std::string("\x01\x02\xff garbage", 11)), "[config] run.toml:1");
  expect_contains(error_of("[run]\nseed = 99999999999999999999\n"), "run.toml:2");
  expect_contains(error_of("[run]\nname = \"a\nb\"\n"), "run.toml:2");
}

TEST(ReadConfig, a_truncated_file_is_one_clear_line_wherever_it_ends) {
  const std::string whole = std::string(kGood) + "[batch]\nglobal_batch = 4\n";
  for (size_t length = 0; length < std::string(kGood).size() - 1; ++length) {
    const auto error = error_of(whole.substr(0, length));
    EXPECT_EQ(error.rfind("[config] run.toml", 0), 0u) << length << ": " << error;
  }
}

TEST(ReadConfig, names_the_nearest_key_and_the_line_of_an_unknown_one) {
  EXPECT_EQ(error_of(std::string(kGood) + "[batch]\nmicro_batch = 4\n"),
            "[config] run.toml:9: unknown key batch.micro_batch; nearest: batch.microbatch");
  expect_contains(error_of(std::string(kGood) + "[modle]\nnorm = 1\n"),
                  "run.toml:8: unknown section [modle]; nearest: [model]");
  expect_contains(error_of(std::string(kGood) + "[data.evl]\nkind = \"csv\"\n"),
                  "nearest: [data.eval]");
  expect_contains(error_of(std::string(kGood) + "[wholly_other_things]\n"), "see tanren help");
}

TEST(ReadConfig, translates_the_sections_of_other_trainers_key_by_key) {
  const auto text = error_of(std::string(kGood) + "[fit_options]\nmax_epochs = 3\nlr = 0.1\n");
  expect_contains(text, "run.toml:9: unknown key fit_options.max_epochs; here it is run.epochs");
  expect_contains(text, "run.toml:10: unknown key fit_options.lr; here it is");
}

TEST(ReadConfig, tells_all_problems_at_once_in_the_order_of_the_file) {
  const auto lines = lines_of(error_of(
      "[x]\ny=1\n[run]\nsteps = 0\nnmae = \"a\"\n[model]\nkind = \"mpl\"\n[clip]\nnorm = \"x\"\n",
      {"data.shuffle=2"}));
  ASSERT_EQ(lines.size(), 7u);
  expect_contains(lines[0], "run.toml:2: unknown key x.y");
  expect_contains(lines[1], "run.toml:5: unknown key run.nmae; nearest: run.name");
  expect_contains(lines[2], "run.toml:9: clip.norm must be a number, not 'x'");
  expect_contains(lines[3], "--set data.shuffle=2: data.shuffle must be true or false, not 2");
  expect_contains(lines[4], "run.toml:4: run.steps is 0; it must be at least 1");
  expect_contains(lines[5], "run.toml:7: model.kind \"mpl\" is unknown");
  expect_contains(lines[6], "run.toml: data.train.kind is missing");
}

TEST(ReadConfig, tells_a_problem_of_one_key_once) {
  EXPECT_EQ(error_of(kGood, {"optimizer.learning_rate=nan"}),
            "[config] --set optimizer.learning_rate=nan: optimizer.learning_rate must be a "
            "number, not nan");
  EXPECT_EQ(
      lines_of(error_of("[run]\nepochs = 1\n[model]\nkind = 5\n[data.train]\nkind = 6\n")).size(),
      2u);
}

TEST(ReadConfig, refuses_values_of_another_type_and_says_which_is_expected) {
  for (const auto& [line, part] : std::map<std::string, std::string>{
           {"run.epochs=1.5", "run.epochs must be a whole number, not 1.5"},
           {"run.epochs=99999999999999999999", "run.epochs must be a whole number"},
           {"run.deterministic=1", "run.deterministic must be true or false, not 1"},
           {"run.deterministic=True", "run.deterministic must be true or false, not 'True'"},
           {"model.hidden=x", "model.hidden must be a list of whole numbers, not 'x'"},
           {"model.hidden=[1, x]", "model.hidden must be a list of whole numbers"},
           {"evaluate.metrics=[1]x", "evaluate.metrics must be a list of texts"},
           {"optimizer.learning_rate=fast", "optimizer.learning_rate must be a number"},
           {"optimizer.learning_rate=nan", "optimizer.learning_rate must be a number, not nan"},
           {"optimizer.learning_rate=inf", "optimizer.learning_rate must be a number, not inf"},
           {"batch.global_batch=[3]", "batch.global_batch must be text or a number, not [ 3 ]"},
           {"model.options=3", "model.options must be a table of plain values, not 3"},
           {"optimizer.groups=3", "optimizer.groups must be a list of tables, not 3"},
           {"run.seed=", "run.seed must be a whole number, not ''"},
           {"run.seed=1\nx = 2", "run.seed must be a whole number, not '1 x = 2'"},
           {"run", "--set run: is no key=value"},
           {"=3", "--set =3: is no key=value"}}) {
    expect_contains(error_of(kGood, {line}), part);
  }
  expect_contains(error_of(std::string("run = 5\n")), "run.toml:1: run is a section; write [run]");
  expect_contains(error_of("[run]\nname = 5\n"), "run.toml:2: run.name must be text, not 5");
  expect_contains(error_of("[[model]]\nkind = \"mlp\"\n"), "model is a section");
}

TEST(ReadConfig, types_set_values_by_their_field) {
  const auto config = parse(
      kGood, {"model.kind=own", "model.hidden=[4, 5]", "data.shuffle=false", "optimizer.kind=sgd",
              "optimizer.momentum=0.5", "run.name=my run", "batch.global_batch=epoch",
              "model.options.width=7", "evaluate.metrics=[accuracy, top5]", "clip.norm=2"});
  EXPECT_EQ(config.model.hidden, (std::vector<int64_t>{4, 5}));
  EXPECT_FALSE(config.data.shuffle);
  EXPECT_EQ(config.optimizer.kind, "sgd");
  EXPECT_EQ(config.run.name, "my run");
  EXPECT_EQ(config.batch.global_batch, "epoch");
  EXPECT_EQ(config.model.options.at("width"), "7");
  EXPECT_EQ(config.evaluate.metrics, (std::vector<std::string>{"accuracy", "top5"}));
  EXPECT_EQ(config.clip.norm, 2.0);
  EXPECT_EQ(parse(kGood, {"batch.global_batch=64"}).batch.global_batch, "64");
  EXPECT_EQ(parse(kGood, {"run.name=5"}).run.name, "5");
  EXPECT_EQ(parse(kGood, {"run.name=\"5\""}).run.name, "5");
  EXPECT_EQ(config.asked.count("optimizer.momentum"), 1u);
  EXPECT_EQ(config.asked.count("optimizer.beta1"), 0u);
}

TEST(WriteConfig, has_values_of_set_as_lines_of_a_file) {
  EXPECT_EQ(toml_of_sets(RunConfig(), {{"optimizer.learning_rate", "0.01"},
                                       {"model.hidden", "[4, 5]"},
                                       {"optimizer.kind", "sgd"},
                                       {"run.name", "5"},
                                       {"run.steps", "none"},
                                       {"model.options.width", "7"},
                                       {"evaluate.metrics", "accuracy, top5"},
                                       {"objectives.own.every", "2"}}),
            "[optimizer]\nlearning_rate = 0.01\nkind = \"sgd\"\n\n[model]\nhidden = [4, 5]\n\n"
            "[run]\nname = \"5\"\n# steps is not set\n\n"
            "[model.options]\nwidth = \"7\"\n\n"
            "[evaluate]\nmetrics = [\"accuracy\", \"top5\"]\n\n[objectives.own]\nevery = 2\n");
}

TEST(ReadConfig, the_last_word_wins_and_none_takes_an_optional_key_back) {
  EXPECT_EQ(parse(kGood, {"run.seed=1", "run.seed=2"}).run.seed, 2);
  expect_contains(error_of(kGood, {"run.steps=5"}), "both set");
  const auto config = parse(kGood, {"run.epochs=none", "run.steps=5"});
  EXPECT_FALSE(config.run.epochs.has_value());
  EXPECT_EQ(config.run.steps, 5);
  EXPECT_EQ(config.asked.count("run.epochs"), 0u);
  EXPECT_EQ(parse(kGood, {"run.max_time=8h", "run.max_time=none"}).run.max_time, "");
  expect_contains(error_of(kGood, {"run.seed=none"}), "run.seed must be a whole number");
}

TEST(ReadConfig, reads_optimizer_groups_and_says_what_is_wrong_in_one) {
  const std::string head = std::string(kGood) + "[[optimizer.groups]]\nparameters = [\"*.bias\"]\n";
  const auto config = parse(head + "weight_decay = 0\n");
  ASSERT_EQ(config.optimizer.groups.size(), 1u);
  EXPECT_EQ(*config.optimizer.groups[0].weight_decay, 0.0);
  EXPECT_FALSE(config.optimizer.groups[0].learning_rate_scale.has_value());
  expect_contains(error_of(head + "lr = 1\n"),
                  "run.toml:10: unknown key optimizer.groups.lr; one of optimizer.groups."
                  "parameters, optimizer.groups.learning_rate_scale");
  expect_contains(error_of(head + "weight_decay = \"no\"\n"),
                  "run.toml:10: optimizer.groups.weight_decay must be a number, not 'no'");
  expect_contains(error_of(std::string(kGood) + "[[optimizer.groups]]\nweight_decay = 0\n"),
                  "optimizer.groups[0] has no parameters");
  expect_contains(error_of(std::string(kGood) + "[optimizer.groups]\nparameters = [\"*\"]\n"),
                  "optimizer.groups must be a list of tables");
}

TEST(ReadConfig, reads_what_is_unfrozen_when_and_says_what_is_wrong_in_it) {
  const auto config = parse(
      kGood, {"model.freeze=[stem.*]", "model.unfreeze=[{parameters = [\"stem.*\"], step = 20}]"});
  ASSERT_EQ(config.model.unfreeze.size(), 1u);
  EXPECT_EQ(config.model.unfreeze[0].step, 20);
  expect_contains(error_of(kGood, {"model.unfreeze=[{parameters = [\"*\"], step = 1}]"}),
                  "model.unfreeze has no meaning without model.freeze");
  expect_contains(error_of(kGood, {"model.freeze=[*]", "model.unfreeze=[{parameters = [\"*\"]}]"}),
                  "model.unfreeze[0] has no step");
  expect_contains(error_of(kGood, {"model.freeze=[*]", "model.unfreeze=[{step = -1}]"}),
                  "model.unfreeze[0] has no parameters");
  expect_contains(
      error_of(kGood, {"model.freeze=[*]", "model.unfreeze=[{parameters = [\"*\"], epoch = 1}]"}),
      "unknown key model.unfreeze.epoch; one of model.unfreeze.parameters, model.unfreeze.step");
}

TEST(ReadConfig, makes_data_paths_absolute_from_the_files_folder) {
  EXPECT_EQ(parse(kGood).data.train.path, "/data/train.csv");
  EXPECT_EQ(parse(kGood, {"data.train.path=/y/x.csv"}).data.train.path, "/y/x.csv");
}

// Issue 22: docs/models.md writes evaluate.metrics=accuracy,f1_macro.
TEST(ReadConfig, a_list_that_is_typed_may_do_without_its_brackets) {
  const RunConfig config = parse(kGood, {"evaluate.metrics=accuracy,f1_macro",
                                         "model.hidden=64, 32", "data.train.only_classes=3,1"});
  EXPECT_EQ(config.evaluate.metrics, (std::vector<std::string>{"accuracy", "f1_macro"}));
  EXPECT_EQ(config.model.hidden, (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(config.data.train.only_classes, (std::vector<std::string>{"3", "1"}));
  EXPECT_EQ(parse(kGood, {"evaluate.metrics=top5"}).evaluate.metrics,
            (std::vector<std::string>{"top5"}));
  EXPECT_EQ(parse(kGood, {"model.hidden=8"}).model.hidden, (std::vector<int64_t>{8}));
}

TEST(ReadConfig, a_text_without_quotes_is_told_with_them) {
  const std::string text = "[run]\nsteps = 1\n[data.train]\npath = train.csv # here\n";
  expect_contains(error_of(text), "run.toml:4: ");
  expect_contains(error_of(text), "texts need quotes: path = \"train.csv\"");
  expect_contains(error_of("[run\nsteps = 1\n"), "fix the TOML");
}

// Issue 22: switches, lists and numbers were advised to be texts, which their keys refuse.
TEST(ReadConfig, a_value_that_is_no_toml_is_told_as_its_key_wants_it) {
  const auto told = [](const std::string& text, const std::string& advice) {
    expect_contains(error_of(text), advice);
  };
  told("[data]\nshuffle = True\n", "write shuffle = true");
  told("[data]\nshuffle = off  # always\n", "write shuffle = false");
  told("[data]\nshuffle = maybe\n", "shuffle takes true or false; give that");
  told("[evaluate]\nmetrics = accuracy, f1_macro\n", "metrics = [\"accuracy\", \"f1_macro\"]");
  told("[evaluate]\nmetrics = [accuracy, f1_macro]\n", "metrics = [\"accuracy\", \"f1_macro\"]");
  told("[schedule]\nmilestones = 2, 4\n", "lists need brackets: milestones = [2, 4]");
  told("[model]\nhidden = [8, wide]\n", "hidden takes a list of whole numbers");
  told("[run]\nsteps = None\n", "steps takes a whole number; give that, or leave the line out");
  told("[run]\nsteps =\n", "steps takes a whole number");
  told("run.steps = many\n", "run.steps takes a whole number");
  told("[data.train]\npath = 2026/train.csv\n", "texts need quotes: path = \"2026/train.csv\"");
  told("[batch]\nglobal_batch = epoch\n", "texts need quotes: global_batch = \"epoch\"");
  told("[batch]\nglobal_batch = 3x2\n", "global_batch takes ");
  told("[model]\ninit_from = None\n", "init_from takes text; give that, or leave the line out");
  told("[data.eval]\nbroken = True\n", "broken takes text");
  told("[[optimizer.groups]]\nparameters = *bias\n", "parameters = [\"*bias\"]");
  told("[model.options]\nwidth = wide\n", "texts need quotes: width = \"wide\"");
  told("[strange]\nshuffle = True\n", "fix the TOML");
  told("[run]\nsteps = 1\nsteps = 2\n", "fix the TOML");  // nothing is wrong with the value
}

TEST(ReadConfig, a_key_of_the_file_that_set_makes_meaningless_is_left_out_and_said) {
  std::vector<std::string> told;
  const auto before = set_log_sink([&](std::string_view line) { told.emplace_back(line); });
  const std::string mlp = std::string(kGood).replace(std::string(kGood).find("\"mlp\"\n"), 6,
                                                     "\"mlp\"\nhidden = [8]\ndropout = 0.5\n");
  const RunConfig config = parse(mlp, {"model.kind=convnet"});
  // A meaningless key is still an error if it is typed itself, or if the file gives its cause.
  const std::string typed = error_of(mlp, {"model.kind=convnet", "model.hidden=9"});
  const std::string file =
      error_of(std::string(mlp).replace(mlp.find("\"mlp\""), 5, "\"convnet\""));
  set_log_sink(before);
  EXPECT_EQ(parse(mlp + "[data.eval]\nkind = \"csv\"\npath = \"e.csv\"\nclasses = 3\n",
                  {"data.eval.kind="})
                .data.eval.path,
            "");
  EXPECT_EQ(config.model.hidden, RunConfig().model.hidden);
  EXPECT_EQ(config.model.dropout, 0.5);
  EXPECT_EQ(config.asked.count("model.hidden"), 0u);
  EXPECT_EQ(told, std::vector<std::string>{"[config] model.hidden of the file is left out: it has "
                                           "no meaning for --set model.kind=convnet"});
  expect_contains(typed, "model.hidden has no meaning for model.kind \"convnet\"");
  expect_contains(file, "model.hidden has no meaning for model.kind \"convnet\"");
}

TEST(ReadConfig, makes_paths_of_the_command_line_absolute_from_the_working_folder) {
  const auto here = std::filesystem::current_path();
  const auto config =
      parse(kGood, {"data.train.path=./x.csv", "data.eval.path=../e.csv", "data.eval.kind=csv",
                    "model.init_from=a.pt", "optimizer.init_from=b.pt"});
  EXPECT_EQ(config.data.train.path, here / "x.csv");
  EXPECT_EQ(config.data.eval.path, here.parent_path() / "e.csv");
  EXPECT_EQ(config.model.init_from, here / "a.pt");
  EXPECT_EQ(config.optimizer.init_from, here / "b.pt");
  const std::string text =
      "[run]\nsteps = 1\n[model]\nfrom_hf = \"./hf\"\n[data.train]\n"
      "kind = \"csv\"\npath = \"x.csv\"\n";
  EXPECT_EQ(parse(text).model.from_hf, "/data/hf");
  EXPECT_EQ(parse(text, {"model.from_hf=./hf"}).model.from_hf, here / "hf");
  EXPECT_EQ(parse(text, {"model.from_hf=owner/hf"}).model.from_hf, "owner/hf");
}

class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string error_of_file(const std::string& name) const {
    try {
      read_config(folder_ / name, {}, {"mlp"});
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("config-" + std::to_string(::getpid()));
};

TEST_F(ConfigFile, that_is_missing_empty_blank_or_a_folder_is_one_clear_line) {
  expect_contains(error_of_file("no.toml"), "no.toml does not exist; give a config file");
  expect_contains(error_of_file("."), "is a folder; give a config file");
  write("empty.toml", "");
  expect_contains(error_of_file("empty.toml"), "empty.toml is empty");
  write("blank.toml", " \n\t\r\n");
  expect_contains(error_of_file("blank.toml"), "blank.toml is empty");
  write("remark.toml", "# nothing\n");
  expect_contains(error_of_file("remark.toml"), "model.kind is missing");
}

TEST_F(ConfigFile, gives_the_run_its_name_and_its_paths) {
  write("good.toml", kGood);
  const auto config = read_config(folder_ / "good.toml", {}, {"mlp"});
  EXPECT_EQ(config.run.name, "good");
  EXPECT_EQ(config.asked.count("run.name"), 0u);
  EXPECT_EQ(config.data.train.path, (folder_ / "train.csv").string());
  EXPECT_EQ(read_config(folder_ / "good.toml", {"run.name=other"}, {"mlp"}).run.name, "other");
}

}  // namespace
}  // namespace tanren
