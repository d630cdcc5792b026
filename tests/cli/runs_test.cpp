// `tanren runs` lists a folder of runs as a table and as JSON. A folder that is no run, or is
// damaged, also has a row.
#include "tests/support/command_run.h"

#include <map>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

class RunsVerb : public CommandRun {
 protected:
  std::map<std::string, nlohmann::json> runs(const std::string& folder) const {
    const auto result = tanren("runs " + folder + " --json");
    EXPECT_EQ(result.code, 0) << result.output;
    std::map<std::string, nlohmann::json> found;
    const nlohmann::json listed = nlohmann::json::parse(result.output);
    for (const auto& run : listed["runs"]) found[run["name"]] = run;
    return found;
  }
};

TEST_F(RunsVerb, refuses_a_folder_that_is_not_there_and_lists_an_empty_one) {
  expect_code("runs", 2,
              {"[runs] runs does not exist; name the folder that holds the run folders"});
  expect_code("runs train.csv", 2, {"[runs] train.csv is no folder"});
  expect_code("runs --all", 2, {"runs takes no --all"});
  fs::create_directory(at("runs"));
  expect_code("runs", 0, {"no run folders in runs"});
  EXPECT_TRUE(runs("").empty());
}

TEST_F(RunsVerb, shows_what_became_of_each_run_and_passes_over_nothing) {
  ASSERT_EQ(tanren("run run.toml --quiet --out runs/done --set evaluate.every=2").code, 0);
  stop_after("runs/half", 3);
  stop_after("runs/torn", 3);
  folder_.file("runs/torn/config.toml", "[run]\nsteps = ");
  fs::create_directories(at("runs/photos"));
  folder_.file("runs/photos/cat.jpg", "x");
  folder_.file("runs/notes.txt", "x");
  const auto result =
      shell("B=" TANREN_BINARY
            "; $B run run.toml --quiet --out runs/live --set run.steps=100000000 & P=$!; "
            "for i in $(seq 400); do [ -s runs/live/log.jsonl ] && break; sleep 0.05; done; "
            "$B runs --json > live.json; kill -9 $P; wait $P; $B runs",
            folder_.path());
  nlohmann::json live;
  const nlohmann::json listed = nlohmann::json::parse(read_file(at("live.json")));
  for (const auto& run : listed["runs"]) {
    if (run["name"] == "live") live = run;
  }
  EXPECT_EQ(live["state"], "running");
  EXPECT_EQ(live["total_steps"], 100000000);
  const auto found = runs("runs");
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found.at("live")["state"], "failed");
  EXPECT_EQ(found.at("half")["state"], "stopped");
  EXPECT_EQ(found.at("half")["step"], 3);
  EXPECT_EQ(found.at("half")["best"], nullptr);
  EXPECT_EQ(found.at("done")["state"], "finished");
  EXPECT_EQ(found.at("done")["step"], 8);
  EXPECT_EQ(found.at("done")["total_steps"], 8);
  EXPECT_EQ(found.at("done")["loss"], last_attempt("runs/done")["loss"]);
  double best = 1e9;
  for (const auto& line : log("runs/done")) {
    if (line.contains("evaluation"))
      best = std::min(best, line["evaluation"]["loss"].get<double>());
  }
  EXPECT_EQ(found.at("done")["best"]["metric"], "loss");
  EXPECT_EQ(found.at("done")["best"]["value"], best);
  EXPECT_LT(found.at("done")["age_seconds"].get<double>(), 3600);
  EXPECT_EQ(found.at("torn")["state"], "damaged");
  TANREN_EXPECT_CONTAINS(found.at("torn")["remark"].get<std::string>(), "config.toml:2");
  EXPECT_EQ(found.at("photos")["state"], "no run");
  for (const char* part : {"RUNS", "state", "done", "finished", "8/8", "loss ", "stopped", "3/8",
                           "damaged", "no config.toml in it", "failed"}) {
    TANREN_EXPECT_CONTAINS(result.output, part);
  }
  EXPECT_EQ(runs("runs/half").size(), 1u);  // given a run folder itself
}

}  // namespace
}  // namespace tanren::testing
