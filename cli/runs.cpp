#include "tanren/monitor/runs.h"
#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/config/metric_mode.h"
#include "tanren/monitor/run_folders.h"
#include "tanren/page/table.h"
#include "tanren/run/run_folder.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>

namespace tanren::cli {

namespace {

namespace fs = std::filesystem;

// Adds the best evaluation of the log, by the metric that the config ranks checkpoints by. A config
// that cannot be read makes a damaged folder.
void add_best(RunFolderState& state) {
  if (state.stage == RunStage::no_run || state.stage == RunStage::damaged) return;
  try {
    const CheckpointOptions ranked = recorded_config(state.folder).checkpoint;
    const bool is_lower = lower_is_better(ranked.metric, ranked.mode).value_or(true);
    const auto best = best_evaluation(state.folder / "log.jsonl", ranked.metric, is_lower);
    if (!best) return;  // the one from the summary stays
    state.best = best;
    state.best_metric = ranked.metric;
  } catch (const std::exception& error) {          // one damaged folder must not hide the others
    if (state.stage == RunStage::running) return;  // the process itself has read a whole config
    state.stage = RunStage::damaged;
    state.remark = error.what();
  }
}

std::vector<RunFolderState> states_in(const fs::path& folder) {
  std::set<fs::path> running;
  for (const RunStatus& run : find_runs()) running.insert(run.folder);
  std::vector<RunFolderState> states;
  for (const fs::path& one : run_folders_in(folder)) {
    states.push_back(run_folder_state(one, running));
    add_best(states.back());
  }
  return states;
}

std::string name_of(const fs::path& folder) {
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

std::string step_text(const RunFolderState& state) {
  if (state.stage == RunStage::no_run || state.stage == RunStage::damaged) return "-";
  const std::string step = to_text(state.step);
  return state.total_steps > 0 ? step + "/" + to_text(state.total_steps) : step;
}

std::string last_text(const RunFolderState& state) {
  std::string text;
  if (state.best) {
    text = fmt::format("{} {} at step {}", one_line(state.best_metric),
                       short_text(state.best->value, 4), to_text(state.best->step));
  }
  if (state.remark.empty()) return text;
  return text + (text.empty() ? "" : "; ") + one_line(state.remark);
}

std::string table_of(const std::vector<RunFolderState>& states) {
  Table table{.title = "runs",
              .head = {"run", "state", "step", "loss", "written", "best"},
              .rows = {},
              .texts = 2,
              .note = {},
              .remarks = true};
  for (const RunFolderState& state : states) {
    table.rows.push_back({one_line(name_of(state.folder)), name(state.stage), step_text(state),
                          state.loss ? short_text(*state.loss, 4) : "-",
                          state.age_seconds ? seconds_text(*state.age_seconds) + " ago" : "-",
                          last_text(state)});
  }
  return text_of(table);
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string json_of(const fs::path& folder, const std::vector<RunFolderState>& states) {
  nlohmann::ordered_json json{{"folder", folder.string()},
                              {"runs", nlohmann::ordered_json::array()}};
  for (const RunFolderState& state : states) {
    nlohmann::ordered_json best(nullptr);
    if (state.best) {
      best = {
          {"metric", state.best_metric}, {"value", state.best->value}, {"step", state.best->step}};
    }
    const bool is_counted = state.total_steps > 0;
    json["runs"].push_back(
        {{"name", name_of(state.folder)},
         {"folder", state.folder.string()},
         {"state", name(state.stage)},
         {"step", state.step},
         {"total_steps", is_counted ? nlohmann::ordered_json(state.total_steps) : nullptr},
         {"loss", or_null(state.loss)},
         {"best", best},
         {"age_seconds", or_null(state.age_seconds)},
         {"remark", state.remark}});
  }
  return json_text(json);
}

}  // namespace

int runs(const Arguments& arguments, const Registry& /*registry*/) {
  const fs::path folder = arguments.file.empty() ? "runs" : arguments.file;
  const auto states = states_in(folder);
  if (arguments.json) {
    std::cout << json_of(folder, states) << "\n";
  } else if (states.empty()) {
    std::cout << "no run folders in " << folder.string() << "\n";
  } else {
    std::cout << table_of(states);
  }
  return 0;
}

}  // namespace tanren::cli
