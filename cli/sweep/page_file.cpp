#include "cli/sweep/page_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/config/write_config.h"
#include "tanren/monitor/log_tail.h"
#include "tanren/run/fork_command.h"
#include "tanren/sweep/sweep_page.h"

#include <nlohmann/json.hpp>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTime = "time.json";
constexpr uintmax_t kMostLogBytes = uintmax_t{256} << 20;  // about a second to read

// Whether all evaluations of the trial are in the journal: they are reported before its value.
bool has_told_all(const TrialRecord& record) {
  const bool has_ended = record.state == TrialState::ended || record.state == TrialState::paused;
  return has_ended && record.value;
}

std::map<int64_t, Evaluations> logs_of(const SweepPlace& place, const Study& study) {
  std::map<int64_t, Evaluations> logs;
  uintmax_t bytes = 0;
  for (const TrialRecord* record : curve_trials(study)) {
    if (has_told_all(*record)) continue;
    const fs::path log = place.trial(record->id) / "log.jsonl";
    std::error_code none;
    const uintmax_t size = fs::file_size(log, none);
    if (none || bytes + size > kMostLogBytes) continue;
    bytes += size;
    logs[record->id] = evaluations_of(log, study.options().metric);
  }
  return logs;
}

}  // namespace

SweepTime read_time(const SweepPlace& place) {
  const fs::path file = place.folder / kTime;
  std::error_code none;
  if (!fs::exists(file, none)) return {};
  try {
    const nlohmann::json json = parse_json(read_file(file));
    return {.seconds = json.at("seconds").get<double>(),
            .cpu_seconds = json.at("cpu_seconds").get<double>()};
  } catch (const nlohmann::json::exception&) {
    return {};
  } catch (const Error&) {  // a sweep continues despite a damaged time.json
    return {};
  }
}

void write_time(const SweepPlace& place, const SweepTime& time) {
  const nlohmann::ordered_json json = {{"seconds", time.seconds},
                                       {"cpu_seconds", time.cpu_seconds}};
  write_file(place.folder / kTime, json_text(json) + "\n");
}

void write_page(const SweepPlace& place, const Study& study, const SweepTime& time) {
  SweepPageFacts facts{.name = place.folder.string()};
  facts.seconds = time.seconds;
  facts.cpu_seconds = time.cpu_seconds;
  facts.logs = logs_of(place, study);
  if (const TrialRecord* best = study.best()) {
    for (const auto& [key, value] : best->values) {
      facts.best_sets +=
          (facts.best_sets.empty() ? "--set " : " --set ") + shell_word(key + "=" + value);
    }
    facts.best_toml = toml_of_sets(place.config, best->values);
  }
  write_file(place.folder / "sweep.html", sweep_page(study, facts));
}

}  // namespace tanren::cli
