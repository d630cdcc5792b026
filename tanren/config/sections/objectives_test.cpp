#include "tanren/config/sections/objectives.h"

#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/config/config_test_util.h"
#include "tanren/config/describe.h"
#include "tanren/config/identity.h"
#include "tanren/config/kinds.h"
#include "tanren/config/validate.h"
#include "tanren/config/value_text.h"
#include "tanren/config/write_config.h"

#include <limits>
#include <map>

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::kGood;
using config_test::parse;

constexpr const char* kGenerator = R"([optimizer]
kind = "adam"
learning_rate = 2e-4
beta1 = 0.5
[schedule]
kind = "cosine"
warmup_steps = 7
[clip]
norm = 1
[objectives.generator]
every = 5
weights = { score = -0.5, "a b" = 2 }
[objectives.generator.optimizer]
learning_rate = 1e-4
[objectives.generator.schedule]
kind = "constant"
[objectives.generator.clip]
value = 0.1
)";

std::string with_generator() { return std::string(kGood) + kGenerator; }

TEST(Objectives, take_what_their_tables_say_and_the_run_for_the_rest) {
  const RunConfig config = parse(with_generator());
  ASSERT_EQ(config.objectives.size(), 1u);
  const ObjectiveOptions& own = config.objectives.at("generator");
  EXPECT_EQ(own.every, 5);
  EXPECT_EQ(own.weights, (std::map<std::string, double>{{"a b", 2}, {"score", -0.5}}));
  EXPECT_EQ(own.optimizer.kind, "adam");
  EXPECT_EQ(own.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(own.optimizer.beta1, 0.5);
  EXPECT_EQ(own.schedule.kind, "constant");
  EXPECT_EQ(own.schedule.warmup_steps, 7);
  EXPECT_EQ(own.clip.norm, 1);
  EXPECT_EQ(own.clip.value, 0.1);
  EXPECT_EQ(config.optimizer.learning_rate, 2e-4);
  EXPECT_EQ(config.clip.value, 0);
  EXPECT_EQ(&optimizer_of(config, "generator"), &own.optimizer);
  EXPECT_EQ(&optimizer_of(config, "critic"), &config.optimizer);
}

TEST(Objectives, are_set_from_the_command_line) {
  RunConfig config = parse(
      kGood, {"objectives.g-1.optimizer.learning_rate=1e-4", "objectives.g-1.every=5",
              "objectives.g-1.weights.fake=0.5", "objectives.g-1.clip.norm=2", "optimizer.kind=sgd",
              "objectives.g-1.optimizer.groups=[{parameters = [\"*bias\"], "
              "weight_decay = 0}]"});
  const ObjectiveOptions& own = config.objectives.at("g-1");
  EXPECT_EQ(own.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(own.optimizer.kind, "sgd") << "what is set later counts, too";
  EXPECT_EQ(own.optimizer.groups.size(), 1u);
  EXPECT_EQ(own.every, 5);
  EXPECT_EQ(own.weights, (std::map<std::string, double>{{"fake", 0.5}}));
  EXPECT_EQ(own.clip.norm, 2);
  config =
      parse(with_generator(),
            {"objectives.generator.optimizer.learning_rate=none", "objectives.generator.every=none",
             "objectives.generator.weights.score=3", "optimizer.learning_rate=0.5"});
  EXPECT_EQ(config.objectives.at("generator").optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.objectives.at("generator").every, std::nullopt);
  EXPECT_EQ(config.objectives.at("generator").weights.at("score"), 3);
  EXPECT_EQ(config.objectives.at("generator").weights.at("a b"), 2);
  EXPECT_EQ(config.asked.count("objectives.generator.optimizer.learning_rate"), 0u);
  config = parse(with_generator(), {"objectives.generator.weights=none"});
  EXPECT_TRUE(config.objectives.at("generator").weights.empty());
}

TEST(Objectives, of_another_kind_take_the_keys_that_their_kind_reads) {
  const RunConfig config =
      parse(kGood, {"optimizer.beta1=0.5", "optimizer.learning_rate=0.1", "optimizer.state=8bit",
                    "optimizer.amsgrad=false", "schedule.kind=polynomial", "schedule.power=2",
                    "schedule.warmup_steps=3", "objectives.sgd.optimizer.kind=sgd",
                    "objectives.sgd.optimizer.momentum=0.5", "objectives.lion.optimizer.kind=lion",
                    "objectives.lion.schedule.kind=linear"});
  const OptimizerOptions &sgd = config.objectives.at("sgd").optimizer,
                         &lion = config.objectives.at("lion").optimizer;
  EXPECT_EQ(sgd.learning_rate, 0.1);
  EXPECT_EQ(sgd.beta1, OptimizerOptions().beta1);
  EXPECT_EQ(sgd.state, "fp32");
  EXPECT_EQ(lion.beta1, 0.5);
  EXPECT_EQ(lion.state, "fp32");
  EXPECT_EQ(config.objectives.at("sgd").schedule.power, 2);
  EXPECT_EQ(config.objectives.at("lion").schedule.power, 1);
  EXPECT_EQ(config.objectives.at("lion").schedule.warmup_steps, 3);
}

TEST(Objectives, with_an_unknown_key_are_told_the_nearest) {
  const std::string head = std::string(kGood) + "[objectives.generator]\nevery = 2\n";
  expect_contains(error_of(head + "evry = 3\n"),
                  "run.toml:10: unknown key objectives.generator.evry; nearest: "
                  "objectives.generator.every");
  expect_contains(error_of(head + "[objectives.generator.optimizer]\nlearning_rte = 3\n"),
                  "unknown key objectives.generator.optimizer.learning_rte; nearest: "
                  "objectives.generator.optimizer.learning_rate");
  expect_contains(error_of(head + "lr = 3\n"),
                  "here it is objectives.generator.optimizer.learning_rate");
  expect_contains(error_of(head + "[objectives.generator.optimiser]\nkind = \"sgd\"\n"),
                  "unknown section [objectives.generator.optimiser]; nearest: "
                  "[objectives.generator.optimizer]");
  expect_contains(error_of(std::string(kGood) + "[objectives]\ngenerator = 3\n"),
                  "objectives.generator is a section; write [objectives.generator]");
  expect_contains(error_of("objectives = 3\n" + std::string(kGood)), "objectives is a section");
  expect_contains(error_of(kGood, {"objectives.generator=3"}), "unknown key objectives.generator");
  expect_contains(error_of(std::string(kGood) + "[objectives.\"a b\"]\nevery = 2\n"),
                  "[objectives.a b]: an objective that a config names has letters, digits, _ and - "
                  "in its name; rename it in the task");
  expect_contains(error_of(head + "weights = 3\n"),
                  "objectives.generator.weights must be a table of numbers, not 3");
  expect_contains(error_of(head + "weights = { a = \"x\" }\n"), "must be a table of numbers");
  expect_contains(error_of(kGood, {"objectives.generator.weights.fake=much"}),
                  "objectives.generator.weights.fake must be a number, not 'much'");
  expect_contains(error_of(head + "[objectives.generator.optimizer]\nkind = sgd\n"),
                  "texts need quotes: kind = \"sgd\"");
}

TEST(Objectives, are_checked_as_the_run_is) {
  for (const auto& [set, part] : std::map<std::string, std::string>{
           {"every=0", "objectives.g.every is 0; it must be at least 1"},
           {"optimizer.kind=sdg", "objectives.g.optimizer.kind \"sdg\" is unknown; one of "},
           {"optimizer.learning_rate=0", "objectives.g.optimizer.learning_rate is 0; it must be"},
           {"optimizer.momentum=0.5",
            "objectives.g.optimizer.momentum has no meaning for "
            "objectives.g.optimizer.kind \"adamw\"; drop it"},
           {"optimizer.layer_decay=2", "objectives.g.optimizer.layer_decay is 2"},
           {"schedule.kind=reduce_on_plateau",
            "objectives.g.schedule.kind \"reduce_on_plateau\" "
            "reads evaluations and there is no [data.eval]"},
           {"schedule.warmup_steps=-1", "objectives.g.schedule.warmup_steps is -1"},
           {"clip.norm=-1", "objectives.g.clip.norm is -1; it must be 0 or more"}}) {
    expect_contains(error_of(kGood, {"objectives.g." + set}), part);
  }
  // A problem of the run's section is reported once.
  EXPECT_EQ(error_of(kGood, {"clip.norm=-1", "objectives.g.every=2"}),
            "[config] --set clip.norm=-1: clip.norm is -1; it must be 0 or more and finite");
  RunConfig config = parse(kGood, {"objectives.g.every=2"});
  config.objectives["g"].weights["a"] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(validate(config, {"mlp"}).size(), 1u);
}

TEST(Objectives, lose_a_key_of_the_file_that_set_makes_meaningless) {
  std::vector<std::string> told;
  const auto before = set_log_sink([&](std::string_view line) { told.emplace_back(line); });
  const std::string text = with_generator() + "[objectives.critic.optimizer]\nbeta2 = 0.5\n";
  const RunConfig own = parse(text, {"objectives.critic.optimizer.kind=sgd"});
  const RunConfig run = parse(text, {"optimizer.kind=sgd"});
  set_log_sink(before);
  EXPECT_EQ(own.objectives.at("critic").optimizer.beta2, std::nullopt);
  EXPECT_EQ(run.objectives.at("critic").optimizer.beta2, std::nullopt);
  EXPECT_EQ(run.objectives.at("generator").optimizer.beta1, OptimizerOptions().beta1);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0],
            "[config] objectives.critic.optimizer.beta2 of the file is left out: it has no "
            "meaning for --set objectives.critic.optimizer.kind=sgd");
}

TEST(Objectives, are_written_with_their_own_keys_alone_and_read_back_equal) {
  const RunConfig config =
      parse(with_generator(),
            {"objectives.critic.optimizer.groups=[{parameters = [\"*bias\"]}]",
             "objectives.critic.schedule.warmup_steps=0", "objectives.idle.every=none"});
  const std::string text = to_toml(config);
  expect_contains(text,
                  "[objectives.critic.optimizer]\n"
                  "groups = [{parameters = [\"*bias\"]}]\n\n"
                  "[objectives.critic.schedule]\nwarmup_steps = 0\n\n"
                  "[objectives.generator]\nevery = 5\n"
                  "weights = {\"a b\" = 2.0, \"score\" = -0.5}\n\n"
                  "[objectives.generator.optimizer]\nlearning_rate = 1e-04\n\n"
                  "[objectives.generator.schedule]\nkind = \"constant\"\n\n"
                  "[objectives.generator.clip]\nvalue = 0.1\n\n[guard]\n");
  const RunConfig back = parse(text);
  EXPECT_EQ(differing_keys(config, back), std::vector<std::string>());
  EXPECT_EQ(differing_keys(back, config), std::vector<std::string>());
  EXPECT_EQ(back.objectives.at("generator").optimizer.beta1, 0.5);
  EXPECT_EQ(back.objectives.at("critic").schedule.warmup_steps, 0);
  EXPECT_EQ(values_of(back), values_of(config));
}

// A program fills the struct itself and asks for nothing.
TEST(Objectives, of_a_program_are_written_and_compared_by_what_differs_from_the_run) {
  RunConfig config = parse(kGood);
  const RunConfig before = config;
  ObjectiveOptions& own = config.objectives["generator"];
  own.optimizer = config.optimizer;
  EXPECT_EQ(to_toml(config), to_toml(before));
  own.optimizer.learning_rate = 0.5;
  own.every = 3;
  expect_contains(to_toml(config),
                  "[objectives.generator]\nevery = 3\n\n[objectives.generator.optimizer]\n"
                  "learning_rate = 0.5\n");
  EXPECT_EQ(differing_keys(before, config).size(), 2u);
  RunConfig other = before;
  other.clip.norm = 4;
  take_keys(config, other, {"clip.norm"});
  EXPECT_EQ(config.objectives.at("generator").every, 3);
  EXPECT_EQ(config.objectives.at("generator").optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.objectives.at("generator").clip.norm, 4);
}

TEST(Objectives, that_are_added_removed_or_changed_make_another_run) {
  const RunConfig plain = parse(kGood);
  const auto with = [](const std::vector<std::string>& sets) { return parse(kGood, sets); };
  const std::string rate = "objectives.g.optimizer.learning_rate",
                    decay = "objectives.g.optimizer.weight_decay";
  const RunConfig one = with({rate + "=0.5", decay + "=0.1"});
  EXPECT_EQ(differing_keys(plain, one),
            (std::vector<std::string>{rate + ": not set → 0.5", decay + ": not set → 0.1"}));
  EXPECT_EQ(differing_keys(one, plain),
            (std::vector<std::string>{rate + ": 0.5 → not set", decay + ": 0.1 → not set"}));
  EXPECT_EQ(differing_keys(one, with({rate + "=0.25", decay + "=0.1"})),
            (std::vector<std::string>{rate + ": 0.5 → 0.25"}));
  EXPECT_TRUE(differing_keys(one, with({rate + "=0.25", decay + "=0.1"}), {rate}).empty());
  EXPECT_EQ(differing_keys(one, plain, {rate, decay}),
            (std::vector<std::string>{decay + ": 0.1 → not set"}));
  const auto changes = changes_on_request(one, plain);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].key, rate);
  EXPECT_EQ(changes[0].now, "not set");
  EXPECT_EQ(changed_keys(one).count(decay), 1u);
  EXPECT_EQ(differing_keys(with({"objectives.g.every=2"}), with({"objectives.g.every=3"})).size(),
            1u);
  EXPECT_EQ(differing_keys(with({"objectives.g.weights.a=2"}), plain).size(), 1u);
  // The run's key, which both objectives take over, is one difference.
  EXPECT_EQ(differing_keys(one, with({rate + "=0.5", decay + "=0.1", "optimizer.beta1=0.5"})),
            (std::vector<std::string>{"optimizer.beta1: 0.9 → 0.5"}));
  EXPECT_NE(values_of_all_ranks(one), values_of_all_ranks(plain));

  RunConfig taken = plain;
  take_keys(taken, one, {rate});
  EXPECT_EQ(differing_keys(taken, one), (std::vector<std::string>{decay + ": not set → 0.1"}));
  EXPECT_EQ(taken.objectives.at("g").optimizer.learning_rate, 0.5);
  take_keys(taken, plain, {rate});
  EXPECT_TRUE(differing_keys(taken, plain).empty());
  EXPECT_EQ(taken.objectives.at("g").optimizer.learning_rate, plain.optimizer.learning_rate);
}

TEST(Objectives, decide_by_evaluations_if_their_schedule_does) {
  RunConfig config = parse(kGood, {"objectives.g.every=2"});
  EXPECT_FALSE(evaluations_decide(config));
  config.objectives["g"].schedule.kind = "reduce_on_plateau";
  EXPECT_TRUE(evaluations_decide(config));
}

TEST(Objectives, pack_their_state_with_the_run_where_they_can) {
  RunConfig config = parse(kGood, {"objectives.a.every=2", "objectives.b.optimizer.kind=sgd"});
  set_state(config, "8bit");
  EXPECT_EQ(config.optimizer.state, "8bit");
  EXPECT_EQ(config.objectives.at("a").optimizer.state, "8bit");
  EXPECT_EQ(config.objectives.at("b").optimizer.state, "fp32");
}

TEST(Objectives, keep_a_state_of_their_own_when_the_runs_is_packed) {
  RunConfig config = parse(kGood, {"objectives.a.optimizer.state=fp32"});
  set_state(config, "8bit");
  EXPECT_EQ(config.objectives.at("a").optimizer.state, "fp32");
}

// --set of the run's kind drops keys of the file that the kind does not read. An objective with its
// own kind still reads them.
TEST(Objectives, of_their_own_kind_keep_a_value_that_the_run_drops) {
  const std::string text = std::string(kGood) + R"([optimizer]
kind = "adam"
beta1 = 0.5
[schedule]
kind = "cosine"
final_fraction = 0.5
[objectives.critic.optimizer]
kind = "adam"
[objectives.critic.schedule]
kind = "linear"
[objectives.generator]
every = 2
)";
  const auto before = set_log_sink([](std::string_view) {});
  const RunConfig config = parse(text, {"optimizer.kind=sgd", "schedule.kind=constant"});
  set_log_sink(before);
  const ObjectiveOptions &critic = config.objectives.at("critic"),
                         &generator = config.objectives.at("generator");
  EXPECT_EQ(critic.optimizer.beta1, 0.5);
  EXPECT_EQ(critic.schedule.final_fraction, 0.5);
  EXPECT_EQ(generator.optimizer.beta1, OptimizerOptions().beta1);
  EXPECT_EQ(config.schedule.final_fraction, ScheduleOptions().final_fraction);
  const RunConfig back = parse(to_toml(config));
  EXPECT_EQ(differing_keys(config, back), std::vector<std::string>());
}

TEST(Objectives, leave_out_what_their_own_value_makes_meaningless) {
  const RunConfig config =
      parse(kGood, {"optimizer.kind=sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true",
                    "optimizer.layer_decay=0.9", "optimizer.layers=[\"*\"]",
                    "objectives.a.optimizer.layer_decay=1", "objectives.a.optimizer.momentum=0"});
  EXPECT_TRUE(config.objectives.at("a").optimizer.layers.empty());
  EXPECT_EQ(config.objectives.at("a").optimizer.nesterov, std::nullopt);
}

TEST(Objectives, of_a_program_need_names_that_a_key_can_hold) {
  RunConfig config = parse(kGood);
  config.objectives["loss fn"].optimizer = config.optimizer;
  expect_contains(join(validate(config, {"mlp"})),
                  "objectives has \"loss fn\"; an objective that a config names has");
}

TEST(Objectives, are_explained) {
  for (const char* asked : {"objectives", "objectives.NAME", "objectives.generator"}) {
    const std::string text = help_text(asked);
    expect_contains(text, "objectives.NAME.every (a whole number, default not set)");
    expect_contains(text, "objectives.NAME.weights (a table of numbers");
    expect_contains(text, "objectives.NAME.optimizer (a table");
    EXPECT_EQ(text.find("beta1"), std::string::npos);
  }
  expect_contains(help_text("objectives.generator.every"), "objectives.NAME.every (");
  expect_contains(help_text("objectives.generator.optimizer.beta1"), "optimizer.beta1 (");
  try {
    help_text("objectives.generator.optimiser");
    FAIL();
  } catch (const ConfigError& error) {
    expect_contains(error.what(), "nearest: objectives.NAME.optimizer");
  }
  expect_contains(config_markdown(), "## [objectives.NAME]\n");
}

}  // namespace
}  // namespace tanren
