#include "cli/sweep/trial_end.h"

#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/monitor/log_tail.h"
#include "tanren/run/run_folder.h"
#include "cli/sweep/trial_run.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <fstream>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

constexpr int kResumableCode = 130;

TrialEnd failed_with(TrialOutcome outcome, std::string reason) {
  return {.kind = TrialEnd::failed, .outcome = outcome, .reason = std::move(reason)};
}

// "", or ": " and the line.
std::string after_colon(const std::string& line) { return line.empty() ? "" : ": " + line; }

std::string no_value_text(const Study& study) {
  return "no evaluation in its log has " + study.options().metric;
}

bool run_is_finished(const fs::path& folder) {
  const fs::path file = folder / "summary.json";
  std::error_code none;
  if (!fs::exists(file, none)) return false;
  const nlohmann::json summary = parse_json(read_file(file));
  return summary.is_object() && summary.value("status", nlohmann::json()) == "finished";
}

}  // namespace

std::string last_output_line(const fs::path& folder, int64_t from) {
  constexpr int64_t kMost = 16 << 10;
  std::ifstream file(folder / kRunOutput, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : 0;
  const int64_t bytes = std::min(size - from, kMost);
  if (bytes <= 0) return "";
  file.seekg(size - bytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::string last;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = trimmed(take_line(rest));
    if (!line.empty()) last = line;
  }
  return one_line(last);
}

TrialEnd end_of_trial(const ChildEnd& end, const fs::path& folder, int64_t said_before) {
  if (end.signal == 0 && end.code == 0) return {.kind = TrialEnd::reached};
  const std::string line = last_output_line(folder, said_before);
  if (end.signal != 0) {
    // A process prints the reason before it aborts.
    const std::string why = end.signal == SIGABRT ? after_colon(line) : "";
    return failed_with(TrialOutcome::crashed, signal_text(end.signal) + why);
  }
  switch (end.code) {
    case kResumableCode: return {.kind = TrialEnd::interrupted};
    case kNoDiskCode:  // there may have been no room for the line either
      return {
          .kind = TrialEnd::no_disk,
          .reason = line.empty() ? "[sweep] " + folder.string() + " cannot be written to" : line};
    case kDivergedCode: return failed_with(TrialOutcome::diverged, line);
    case kRefusedCode: return failed_with(TrialOutcome::refused, line);
    case kOutOfMemoryCode: return failed_with(TrialOutcome::out_of_memory, line);
    case 1: return failed_with(TrialOutcome::failed, line);
    default: break;
  }
  return failed_with(TrialOutcome::failed,
                     fmt::format("exit code {}{}", end.code, after_colon(line)));
}

bool was_asked_to_stop(const ChildEnd& end) {
  if (end.signal == 0) return end.code == kResumableCode;
  return end.signal == SIGINT || end.signal == SIGTERM || end.signal == SIGHUP;
}

int64_t newest_step(const fs::path& folder) {
  const auto steps = complete_steps(folder / "checkpoints");
  return steps.empty() ? -1 : step_of(steps.back());
}

int64_t last_step(const fs::path& folder) {
  const auto log = read_log_tail(folder / "log.jsonl");
  return log ? log->step : 0;
}

bool has_come(const Trial& trial, const fs::path& folder) {
  if (run_is_finished(folder)) return true;
  return trial.until > 0 && newest_step(folder) >= trial.until;
}

bool is_there(const Trial& trial, const fs::path& folder, const std::string& metric) {
  if (run_is_finished(folder)) return true;
  if (!has_come(trial, folder)) return false;
  const auto values = evaluations_of(folder / "log.jsonl", metric);
  return std::any_of(values.begin(), values.end(),
                     [&](const auto& value) { return value.first == trial.until; });
}

TrialEnd checked(const TrialEnd& end, const Trial& trial, const fs::path& folder,
                 const std::string& metric) {
  if (end.kind == TrialEnd::no_disk) return end;
  if (end.kind != TrialEnd::reached) {
    return is_there(trial, folder, metric) ? TrialEnd{.kind = TrialEnd::reached} : end;
  }
  if (has_come(trial, folder)) return end;
  return failed_with(TrialOutcome::failed,
                     "its process ended before its run did, with exit code 0");
}

void tell_reached(Study& study, const Trial& trial, const fs::path& folder) {
  const auto values = evaluations_of(folder / "log.jsonl", study.options().metric);
  std::optional<double> last;
  for (const auto& [step, value] : values) {
    if (trial.until > 0 && step > trial.until) break;
    study.report(trial, step, value);
    last = value;
  }
  if (last) return study.tell(trial, *last);
  study.tell(trial, TrialOutcome::failed, no_value_text(study), last_step(folder));
}

void tell_reached(Study& study, const ConfirmingRun& run, const fs::path& folder) {
  const auto values = evaluations_of(folder / "log.jsonl", study.options().metric);
  if (!values.empty()) {
    return study.confirm({.run = run, .step = values.back().first, .value = values.back().second});
  }
  study.confirm({.run = run,
                 .step = last_step(folder),
                 .outcome = TrialOutcome::failed,
                 .reason = no_value_text(study)});
}

}  // namespace tanren::cli
