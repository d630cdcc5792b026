#include "tanren/sweep/leaderboard.h"

#include "tanren/base/json_text.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/page/table.h"
#include "tanren/sweep/confirmation.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace tanren {

namespace {

using Json = nlohmann::ordered_json;

// Where the trial comes from or why it failed.
std::string remark_on(const Study& study, const TrialRecord& record) {
  if (record.same_as) return fmt::format("as trial {}", *record.same_as);
  const TrialRecord& own = answering(study, record);
  if (!own.reason.empty()) return own.reason;
  if (!own.fork_of) return "";
  return fmt::format("from trial {} at step {}", *own.fork_of, own.fork_step);
}

Json json_of(const Study& study, const PairedDifference& difference) {
  const bool is_better = (difference.mean < 0) == study.options().lower_is_better;
  const char* otherwise = is_better ? "better" : "worse";
  const char* verdict = difference.is_noise() ? "within_noise" : otherwise;
  return {{"trial", difference.trial},
          {"pairs", difference.pairs},
          {"mean", difference.pairs > 0 ? Json(difference.mean) : Json()},
          {"standard_error", difference.error ? Json(*difference.error) : Json()},
          {"p", difference.p ? Json(*difference.p) : Json()},
          {"verdict", difference.p ? Json(verdict) : Json()}};
}

Json json_of(const Confirmed& end) {
  Json json = {{"trial", end.run.trial ? Json(*end.run.trial) : Json()},
               {"seed", end.run.seed},
               {"state", to_text(end.outcome)},
               {"value", end.value ? Json(*end.value) : Json()},
               {"step", end.step}};
  if (!end.reason.empty()) json["reason"] = end.reason;
  return json;
}

Json confirmation_json(const Study& study) {
  Json trials = Json::array(), runs = Json::array();
  for (const PairedDifference& difference : paired_differences(study)) {
    trials.push_back(json_of(study, difference));
  }
  for (const Confirmed& end : study.confirmed()) {
    if (!is_due(&end)) runs.push_back(json_of(end));
  }
  return {{"trials", std::move(trials)}, {"runs", std::move(runs)}};
}

Json entry_of_trial(const Study& study, const TrialRecord& record, int64_t rank) {
  const TrialRecord& own = answering(study, record);
  Json values = Json::object();
  for (const auto& [key, value] : record.values) values[key] = value;
  Json json = {{"rank", rank},
               {"trial", record.id},
               {"state", state_text(study, record)},
               {"value", own.value ? Json(*own.value) : Json()},
               {"step", own.step},
               {"values", std::move(values)}};
  if (!own.reason.empty()) json["reason"] = own.reason;
  if (record.same_as) json["same_as"] = *record.same_as;
  if (record.fork_of) json["fork_of"] = *record.fork_of;
  if (record.fork_of) json["fork_step"] = record.fork_step;
  if (!record.same_as) json["metrics"] = record.metrics;
  return json;
}

}  // namespace

const TrialRecord& answering(const Study& study, const TrialRecord& record) {
  const int64_t id = record.same_as.value_or(record.id);
  return study.records()[static_cast<size_t>(id)];
}

std::string values_text(const TrialRecord& record) {
  std::vector<std::string> values;
  for (const auto& [key, value] : record.values) values.push_back(key + "=" + value);
  return join(values, " ");
}

std::string counts_text(const Study& study) {
  std::map<std::string, int64_t> counts;
  for (const TrialRecord& record : study.records()) ++counts[state_text(study, record)];
  std::vector<std::string> parts;
  parts.reserve(counts.size());
  for (const auto& [state, count] : counts) parts.push_back(fmt::format("{} {}", count, state));
  return parts.empty() ? "no trial yet" : join(parts);
}

std::vector<const TrialRecord*> ranked(const Study& study) {
  std::vector<const TrialRecord*> order;
  for (const TrialRecord& record : study.records()) order.push_back(&record);
  const bool lower = study.options().lower_is_better;
  const auto key = [&](const TrialRecord* record) {
    const TrialRecord& own = answering(study, *record);
    const int64_t failure = own.value ? -1 : static_cast<int64_t>(own.outcome);
    // A trial with the result of another has the same cost, and comes after it by its number.
    return std::tuple(failure, own.value ? -own.step : 0, cost_of(own, lower), own.id, record->id);
  };
  std::sort(order.begin(), order.end(),
            [&](const TrialRecord* a, const TrialRecord* b) { return key(a) < key(b); });
  return order;
}

std::string state_text(const Study& study, const TrialRecord& record) {
  const TrialRecord& own = answering(study, record);
  switch (own.state) {
    case TrialState::running: return "running";
    case TrialState::paused: return study.is_done() ? "stopped" : "paused";
    case TrialState::waiting: return "waiting";
    case TrialState::ended: break;
  }
  return to_text(own.outcome);
}

std::vector<std::string> confirmation_lines(const Study& study) {
  const StudyOptions& options = study.options();
  std::vector<std::string> lines;
  for (const PairedDifference& difference : paired_differences(study)) {
    lines.push_back(fmt::format("trial {:04}: {}", difference.trial,
                                text_of(difference, options.metric, options.lower_is_better)));
  }
  for (const Confirmed& end : study.confirmed()) {
    if (end.value || is_due(&end)) continue;
    lines.push_back(fmt::format("{}: {}{}; its pairs are left out", name_of(end.run),
                                to_text(end.outcome),
                                end.reason.empty() ? "" : " (" + end.reason + ")"));
  }
  return lines;
}

std::string leaderboard_json(const Study& study) {
  Json trials = Json::array();
  int64_t rank = 0;
  for (const TrialRecord* record : ranked(study)) {
    trials.push_back(entry_of_trial(study, *record, ++rank));
  }
  Json json = {{"metric", study.options().metric},
               {"mode", study.options().lower_is_better ? "min" : "max"},
               {"done", study.is_done()},
               {"trials", std::move(trials)}};
  if (!study.confirmed().empty()) json["confirmation"] = confirmation_json(study);
  return json_text(json, 2) + "\n";
}

std::string leaderboard_text(const Study& study, size_t rows) {
  Table table;
  const std::string& metric = study.options().metric;
  table.title = "trials by " + metric;
  table.head = {"trial", "state", "values", metric, "step", ""};
  table.texts = 3;
  table.remarks = true;
  const auto order = ranked(study);
  for (size_t i = 0; i < std::min(rows, order.size()); ++i) {
    const TrialRecord& record = *order[i];
    const TrialRecord& own = answering(study, record);
    table.rows.push_back({fmt::format("{:04}", record.id), state_text(study, record),
                          values_text(record), own.value ? short_text(*own.value, 6) : "-",
                          to_text(own.step), remark_on(study, record)});
  }
  table.note = counts_text(study);
  if (order.size() > rows) table.note += fmt::format("; {} more rows", order.size() - rows);
  const std::string confirmation = join(confirmation_lines(study), "\n");
  if (confirmation.empty()) return text_of(table);
  return text_of(table) + "\n" +
         text_of(Table{.title = "the best with other seeds", .note = confirmation});
}

}  // namespace tanren
