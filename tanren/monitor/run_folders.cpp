#include "tanren/monitor/run_folders.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/temporary.h"
#include "tanren/monitor/runs.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// The summary of the newest session that ended in order; null: there is none.
nlohmann::json read_summary(const fs::path& folder) {
  std::error_code none;
  if (!fs::exists(folder / "summary.json", none)) return nullptr;
  auto json = parse_json(read_file(folder / "summary.json"));
  if (!json.is_object()) throw InputError("summary.json is no JSON object");
  return json;
}

std::string text_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t count_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// "best.step" and "best.<metric>".
void take_best(const nlohmann::json& summary, RunFolderState& state) {
  constexpr std::string_view kStart = "best.";
  if (!summary.contains("best.step")) return;
  for (const auto& [key, value] : summary.items()) {
    if (!key.starts_with(kStart) || key == "best.step" || !value.is_number()) continue;
    state.best_metric = key.substr(kStart.size());
    state.best = {count_in(summary, "best.step"), value.get<double>()};
  }
}

std::optional<double> youngest(const fs::path& folder) {
  std::optional<double> age;
  for (const char* file : {"log.jsonl", "summary.json", "plan.txt", "config.toml"}) {
    const auto own = seconds_since_write(folder / file);
    if (own && (!age || *own < *age)) age = own;
  }
  return age;
}

// What a folder without a config holds, in words.
std::string contents_of(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "lock" && !is_temporary_name(name)) return "no config.toml in it";
  }
  return "empty";
}

RunStage stage_of(const nlohmann::json& summary, const std::optional<LogTail>& log, bool begun) {
  if (summary.is_null()) return log || begun ? RunStage::failed : RunStage::begun_by_none;
  const std::string status = text_in(summary, "status");
  if (status == "finished") return RunStage::finished;
  if (status == "failed") return RunStage::failed;
  // Attempts after the summary: a later session, which has not written one.
  const bool went_on = log && log->attempt > count_in(summary, "attempts");
  return went_on ? RunStage::failed : RunStage::stopped;
}

constexpr const char* kConfig = "config.toml";
constexpr const char* kOthers[] = {"plan.txt", "log.jsonl", "summary.json"};

// InputError if the file is no regular file (a folder, a pipe or a device could block the reader),
// cannot be read, or is absurdly large. The log may have any size.
void check_file(const fs::path& folder, const char* name) {
  constexpr uintmax_t kMost = uintmax_t{64} << 20;  // bytes; of a log only parts are read
  const fs::path file = folder / name;
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) return;
  const std::string what = std::string(name) + " ";
  if (error) throw InputError(what + "cannot be read (" + error.message() + ")");
  if (!fs::is_regular_file(status)) throw InputError(what + "is no regular file");
  if (::access(file.c_str(), R_OK) != 0) {
    throw InputError(what + "cannot be read (" + std::strerror(errno) + ")");
  }
  const bool is_log = std::string_view(name) == "log.jsonl";
  if (!is_log && fs::file_size(file, error) > kMost) throw InputError(what + "is too large");
}

// Only a run makes these beside its config.
bool is_run_folder(const fs::path& folder) {
  std::error_code none;
  const auto has = [&](const char* name) { return fs::exists(folder / name, none); };
  return has(kConfig) && !has("manifest.json") &&
         (has("lock") || has("checkpoints") ||
          std::any_of(std::begin(kOthers), std::end(kOthers), has));
}

void look(const fs::path& folder, bool is_running, RunFolderState& state) {
  std::error_code none;
  if (fs::exists(folder / "manifest.json", none)) {
    state.remark = "a checkpoint of a run";
    return;
  }
  if (fs::status(folder / kConfig, none).type() == fs::file_type::not_found) {
    state.remark = contents_of(folder);
    return;
  }
  state.stage = RunStage::damaged;  // until the files are read
  check_file(folder, kConfig);
  for (const char* other : kOthers) check_file(folder, other);
  state.age_seconds = youngest(folder);
  state.total_steps = planned_steps(folder);
  const auto log = read_log_tail(folder / "log.jsonl");
  if (log) {
    state.step = log->step;
    state.loss = log->loss;
  }
  state.stage = is_running ? RunStage::running : RunStage::damaged;  // until the rest is read
  const nlohmann::json summary = read_summary(folder);
  if (!is_running) {
    state.stage = stage_of(summary, log, fs::exists(folder / "plan.txt", none));
  }
  if (!summary.is_object()) return;
  take_best(summary, state);
  // The summary says nothing about a session after it. The next start removes the summary of a
  // failed one.
  const bool is_told = state.stage == RunStage::stopped || state.stage == RunStage::finished ||
                       (state.stage == RunStage::failed && text_in(summary, "status") == "failed");
  if (is_told) state.remark = text_in(summary, "reason");
  if (log) return;
  state.step = count_in(summary, "steps");
  const auto loss = summary.find("final_loss");
  if (loss != summary.end() && loss->is_number()) state.loss = loss->get<double>();
}

}  // namespace

const char* name(RunStage stage) {
  switch (stage) {
    case RunStage::running: return "running";
    case RunStage::stopped: return "stopped";
    case RunStage::finished: return "finished";
    case RunStage::failed: return "failed";
    case RunStage::begun_by_none: return "not begun";
    case RunStage::damaged: return "damaged";
    case RunStage::no_run: return "no run";
  }
  return "?";
}

RunFolderState run_folder_state(const fs::path& folder, const std::set<fs::path>& running) {
  RunFolderState state{.folder = folder};
  std::error_code none;
  const bool is_running = running.count(fs::canonical(folder, none)) > 0;
  try {
    look(folder, is_running, state);
  } catch (const std::exception& error) {  // a running process may be writing that file
    if (state.stage != RunStage::running) {
      if (state.stage != RunStage::no_run) state.stage = RunStage::damaged;
      state.remark = error.what();
    }
  }
  return state;
}

std::vector<fs::path> run_folders_in(const fs::path& folder) {
  std::error_code error;
  const auto fail = [&](const std::string& what) {
    throw InputError("[runs] " + folder.string() + " " + what +
                     "; name the folder that holds the run folders");
  };
  if (!fs::exists(folder, error)) fail("does not exist");
  if (!fs::is_directory(folder, error)) fail("is no folder");
  if (is_run_folder(folder) || fs::exists(folder / "manifest.json", error)) return {folder};
  std::vector<fs::path> folders;
  fs::directory_iterator at(folder, error), end;
  if (error) fail("cannot be read (" + error.message() + ")");
  for (; !error && at != end; at.increment(error)) {
    std::error_code none;
    const bool is_hidden = at->path().filename().string().starts_with(".");
    if (!is_hidden && fs::is_directory(at->path(), none)) folders.push_back(at->path());
  }
  if (error) fail("cannot be listed to its end (" + error.message() + ")");
  // A folder of runs may have its own config, which must not hide the runs.
  const bool holds_runs = std::any_of(folders.begin(), folders.end(), is_run_folder);
  std::error_code none;
  if (!holds_runs && fs::exists(folder / kConfig, none)) return {folder};
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace tanren
