// `tanren sweep --set sweep.find=learning_rate` as a user starts it: it trains in memory, begins
// where a run stands, and changes nothing but its report.
#include "tests/sweep/sweep_run.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFind = " --set sweep.find=learning_rate";

class Find : public SweepRun {
 protected:
  // Contents and times of all files and folders in `name`.
  std::map<std::string, std::string> state_of(const std::string& name) const {
    std::map<std::string, std::string> state;
    for (const auto& entry : fs::recursive_directory_iterator(at(name))) {
      const bool is_file = entry.is_regular_file() && !entry.is_symlink();
      const auto time = entry.is_symlink() ? 0 : entry.last_write_time().time_since_epoch().count();
      state[entry.path()] = std::to_string(time) + (is_file ? read_file(entry.path()) : "");
    }
    return state;
  }
  nlohmann::json found(const std::string& out) const {
    return nlohmann::json::parse(read_file(at(out) / "find/learning_rate.json"));
  }
};

TEST_F(Find, of_a_config_prints_lines_of_toml_and_writes_its_report_alone) {
  const auto result = tanren("sweep run.toml" + kFind + " --out s");
  ASSERT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "\n[optimizer]\nlearning_rate = ");
  TANREN_EXPECT_CONTAINS(result.output, "# steepest: ");
  TANREN_EXPECT_CONTAINS(result.output, ", from the beginning\n");
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
    if (entry.is_regular_file()) files.insert(fs::relative(entry.path(), folder_.path()).string());
  }
  const std::set<std::string> expected = {"run.toml", "train.csv", "eval.csv",
                                          "s/find/learning_rate.json", "s/find/learning_rate.html"};
  EXPECT_EQ(files, expected);
  const nlohmann::json json = found("s");
  EXPECT_EQ(json["begun"], 0);
  EXPECT_EQ(json["rates"].size(), json["losses"].size());
  EXPECT_GT(json["steepest"].get<double>(), 1e-8);
  EXPECT_LT(json["steepest"].get<double>(), 1);
  TANREN_EXPECT_CONTAINS(read_file(at("s/find/learning_rate.html")), "rate-plot");
  // The same search again, as JSON, is equal to the last digit.
  const auto again = tanren("sweep run.toml --json" + kFind + " --out s");
  EXPECT_EQ(nlohmann::json::parse(again.output), json);
}

// This task has a rate of its own, so the run's rate would change nothing.
TEST_F(Find, names_the_key_that_the_task_trains_with) {
  const std::string own = " --set objectives.loss.optimizer.learning_rate=0.5";
  const auto result = tanren("sweep run.toml" + kFind + own + " --out s");
  ASSERT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "\n[objectives.loss.optimizer]\nlearning_rate = ");
  EXPECT_EQ(found("s")["key"], "objectives.loss.optimizer.learning_rate");
}

TEST_F(Find, of_a_run_begins_with_its_newest_weights_and_leaves_its_folder_as_it_was) {
  ASSERT_EQ(tanren("run run.toml --quiet --out finished").code, 0);
  stop_after("stopped", 4);
  for (const auto& [run, step] : {std::pair("finished", 8), std::pair("stopped", 4)}) {
    const auto before = state_of(run);
    const auto result = tanren(std::string("sweep ") + run + kFind + " --out s");
    ASSERT_EQ(result.code, 0) << result.output;
    TANREN_EXPECT_CONTAINS(result.output, ", from step " + std::to_string(step) + "\n");
    EXPECT_EQ(state_of(run), before);
    EXPECT_EQ(found("s")["begun"], step);
    // The search begins with the run's next update, whose loss no rate has changed yet.
    fs::copy(at(run), at("copy"), fs::copy_options::recursive);
    ASSERT_EQ(tanren("run copy --quiet --set run.steps=9").code, 0);
    const auto lines = log("copy");
    const auto next = std::find_if(lines.begin(), lines.end(), [&, step = step](const auto& line) {
      return line.contains("attempt") && line["attempt"] == step + 1;
    });
    ASSERT_NE(next, lines.end());
    EXPECT_NEAR((*next)["loss"].get<double>(), found("s")["losses"][0].get<double>(), 1e-6);
    fs::remove_all(at("copy"));
  }
}

TEST_F(Find, stands_beside_a_sweep_of_the_same_file) {
  write("grid", "sampler = \"grid\"\nfind = \"learning_rate\"",
        dimension("optimizer.learning_rate", "values = [0.1, 0.01]"));
  ASSERT_EQ(tanren("sweep grid.toml --quiet --out s").code, 0);
  EXPECT_FALSE(fs::exists(at("s/leaderboard.json")));
  const nlohmann::json before = found("s");
  ASSERT_EQ(tanren("sweep grid.toml --quiet --set sweep.find= --out s").code, 0);
  EXPECT_EQ(trials("s").size(), 2u);
  EXPECT_EQ(found("s"), before);
  expect_code("sweep s" + kFind, 2,
              {"s is the folder of a sweep, and a learning rate is of one run"});
  ASSERT_EQ(tanren("sweep s/best --quiet" + kFind + " --out t").code, 0);
  EXPECT_EQ(found("t")["begun"], 8);
}

TEST_F(Find, refuses_what_it_cannot_find_or_would_change) {
  ASSERT_EQ(tanren("run run.toml --quiet --out a").code, 0);
  fs::create_directory(at("empty"));
  const auto before = state_of("a");
  const auto refuses = [&](const std::string& arguments, const std::string& part) {
    expect_code("sweep " + arguments, 2, {part});
    EXPECT_FALSE(fs::exists(at("sweeps"))) << arguments;
  };
  refuses("run.toml --set sweep.find=batch",
          "sweep.find \"batch\" is unknown; one of learning_rate");
  refuses("run.toml" + kFind + " --set sweep.trials=3", "sweep.trials has no meaning without");
  refuses("none.toml" + kFind, "none.toml");
  refuses("empty" + kFind, "empty is no run folder");
  refuses("a/checkpoints/step-8" + kFind, "is a checkpoint and no run folder");
  refuses("a --set model.hidden=[4]" + kFind, "a was made with another config");
  refuses("run.toml --set run.fork_from=a" + kFind, "run.fork_from is ");
  refuses("run.toml --out a" + kFind, "would lie in the folder of a run");
  refuses("a --out a/deeper/still" + kFind, "would lie in the folder of a run");
  fs::create_directory_symlink("a", at("link"));
  refuses("run.toml --out link/deeper" + kFind, "would lie in the folder of a run");
  refuses("run.toml --out train.csv" + kFind, "cannot write to train.csv/find");
  EXPECT_EQ(state_of("a"), before);
}

// The reference is the best of six rates, one per decade, after ten epochs. A finder trains for two
// epochs.
TEST_F(Find, on_the_digits_comes_near_the_best_of_all_decades) {
  const std::string config = std::string(TANREN_SOURCE_DIR) + "/examples/sweep/digits.toml";
  const std::string sets =
      " --quiet --set run.threads=1 --set run.steps=450 --set schedule.kind=constant";
  double best = 0, lowest = std::numeric_limits<double>::infinity();
  for (const double rate : {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1}) {
    const std::string out = "digits" + std::to_string(std::lround(-std::log10(rate)));
    const std::string given = " --set optimizer.learning_rate=" + std::to_string(rate);
    ASSERT_EQ(tanren("run " + config + sets + given + " --out " + out).code, 0);
    const auto summary = nlohmann::json::parse(read_file(at(out) / "summary.json"));
    const double loss = summary["evaluate.loss"].get<double>();
    if (loss < lowest) best = rate;
    lowest = std::min(lowest, loss);
  }
  ASSERT_EQ(tanren("sweep " + config + sets + kFind + " --out s").code, 0);
  const double valley = found("s")["valley"].get<double>();
  EXPECT_GE(valley, best / 64);
  EXPECT_LE(valley, best * 4);
}

}  // namespace
}  // namespace tanren::testing
