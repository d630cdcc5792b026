#include "tanren/sweep/study_event.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace tanren {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr const char* kKinds[] = {"start", "report", "resume", "end", "trials", "confirm"};

[[noreturn]] void refuse(const std::string& what) { throw InputError(what); }

Json object_of(const std::string& line) {
  Json json = parse_ordered_json(line);
  if (!json.is_object()) refuse("is no JSON object");
  return json;
}

// The number at `key`; empty if it is not there.
std::optional<int64_t> count_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return std::nullopt;
  if (!found->is_number_integer() || found->get<int64_t>() < 0) {
    refuse(std::string(key) + " is no whole number from 0 on");
  }
  return found->get<int64_t>();
}

int64_t needed_count(const Json& json, const char* key) {
  const auto count = count_at(json, key);
  if (!count) refuse(std::string("has no ") + key);
  return *count;
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return "";
  if (!found->is_string()) refuse(std::string(key) + " is no text");
  return found->get<std::string>();
}

void read_values(const Json& json, StudyEvent& event) {
  const auto values = json.find("values");
  if (values == json.end() || !values->is_object()) refuse("has no values");
  for (const auto& [key, value] : values->items()) {
    if (!value.is_string()) refuse("the value of " + key + " is no text");
    event.values.emplace_back(key, value.get<std::string>());
  }
}

Json json_of(const DimensionOptions& dimension) {
  Json json = {{"key", dimension.key}};
  if (dimension.low) json["low"] = *dimension.low;
  if (dimension.high) json["high"] = *dimension.high;
  if (dimension.values.empty()) json["scale"] = dimension.scale;
  if (dimension.whole) json["whole"] = true;
  if (dimension.points) json["points"] = *dimension.points;
  if (!dimension.values.empty()) json["values"] = dimension.values;
  if (!dimension.when.empty()) json["when"] = dimension.when;
  return json;
}

// The dimension of that key as text; "not set" if there is none.
std::string dimension_text(const Json& space, const std::string& key) {
  for (const Json& dimension : space) {
    if (dimension.is_object() && text_at(dimension, "key") == key) return json_text(dimension);
  }
  return "not set";
}

void add_space_changes(const Json& before, const Json& now, std::vector<std::string>& changes) {
  std::set<std::string> keys;
  for (const Json* space : {&before, &now}) {
    for (const Json& dimension : *space) {
      if (dimension.is_object()) keys.insert(text_at(dimension, "key"));
    }
  }
  const size_t known = changes.size();
  for (const std::string& key : keys) {
    const std::string old = dimension_text(before, key), other = dimension_text(now, key);
    if (old != other) changes.push_back("space " + key + ": " + old + " → " + other);
  }
  // The order matters because trial numbers identify points of a grid.
  if (changes.size() == known) changes.emplace_back("space: its order");
}

}  // namespace

StudyEvent event_of(const Confirmed& end) {
  StudyEvent event{.kind = StudyEvent::confirm, .trial = end.run.seed, .step = end.step};
  event.of = end.run.trial;
  event.alone = end.run.alone;
  const bool has_value = end.value && std::isfinite(*end.value);
  if (has_value) {
    event.value = end.value;
    return event;
  }
  const bool is_too_large = end.outcome == TrialOutcome::refused && end.run.alone;
  event.outcome = is_too_large ? TrialOutcome::too_large : end.outcome;
  event.reason = utf8_text(one_line(end.reason));
  if (end.value) {
    event.outcome = TrialOutcome::diverged;
    event.reason = "the value is " + to_text(*end.value);
  }
  return event;
}

Confirmed confirmed_of(const StudyEvent& event) {
  return {.run = {.trial = event.of, .seed = event.trial, .alone = event.alone},
          .step = event.step,
          .value = event.value,
          .outcome = event.outcome.value_or(TrialOutcome::finished),
          .reason = event.reason};
}

std::string event_line(const StudyEvent& event) {
  Json json = {{kKinds[event.kind], event.trial}};
  if (event.kind == StudyEvent::start) {
    Json values = Json::object();
    for (const auto& [key, value] : event.values) values[key] = value;
    json["values"] = std::move(values);
    if (event.same_as) json["same_as"] = *event.same_as;
    if (event.fork_of) json["fork_of"] = *event.fork_of;
    if (event.replaces) json["replaces"] = *event.replaces;
  }
  if (event.kind == StudyEvent::start || event.kind == StudyEvent::resume) {
    json["until"] = event.until;
  }
  if (event.of) json["of"] = *event.of;
  if (event.alone) json["alone"] = true;
  if (event.kind == StudyEvent::report || event.kind == StudyEvent::end ||
      event.kind == StudyEvent::confirm) {
    json["step"] = event.step;
    if (event.value) json["value"] = *event.value;
  }
  if (event.outcome) json["outcome"] = to_text(*event.outcome);
  if (!event.reason.empty()) json["reason"] = event.reason;
  return json_text(json);
}

StudyEvent event_of(const std::string& line) {
  const Json json = object_of(line);
  StudyEvent event;
  const auto is_kind = [&](const char* kind) { return json.contains(kind); };
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), is_kind);
  if (kind == std::end(kKinds)) refuse("is none of start, report, resume, end, trials, confirm");
  event.kind = static_cast<StudyEvent::Kind>(kind - std::begin(kKinds));
  event.trial = needed_count(json, *kind);
  if (event.kind == StudyEvent::start) read_values(json, event);
  event.until = count_at(json, "until").value_or(0);
  event.step = count_at(json, "step").value_or(0);
  event.same_as = count_at(json, "same_as");
  event.fork_of = count_at(json, "fork_of");
  event.replaces = count_at(json, "replaces");
  event.of = count_at(json, "of");
  event.alone = json.value("alone", Json(false)) == Json(true);
  event.reason = text_at(json, "reason");
  for (char& c : event.reason) {  // others may write line ends or terminal escapes
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (const auto value = json.find("value"); value != json.end()) {
    if (!value->is_number()) refuse("value is no number");
    event.value = value->get<double>();
  }
  if (json.contains("outcome")) {
    event.outcome = trial_outcome(text_at(json, "outcome"));
    if (!event.outcome) refuse("outcome is none that a trial has");
  }
  const bool is_end = event.kind == StudyEvent::end || event.kind == StudyEvent::confirm;
  if (is_end && event.value.has_value() == event.outcome.has_value()) {
    refuse("has neither or both of value and outcome");
  }
  if (event.kind == StudyEvent::report && !event.value) refuse("has no value");
  return event;
}

std::string head_line(const Space& space, const StudyOptions& options) {
  Json dimensions = Json::array();
  for (const DimensionOptions& dimension : space.dimensions()) {
    dimensions.push_back(json_of(dimension));
  }
  return json_text(Json{{"sweep", kFormat},
                        {"trials", options.trials},
                        {"metric", options.metric},
                        {"mode", options.lower_is_better ? "min" : "max"},
                        {"sampler", options.sampler},
                        {"scheduler", options.scheduler},
                        {"seed", options.seed},
                        {"steps", options.steps},
                        {"first_rung", options.first_rung},
                        {"reduction", options.reduction},
                        {"interval", options.interval},
                        {"space", std::move(dimensions)}});
}

std::vector<std::string> head_changes(const std::string& before, const std::string& now) {
  const Json old = object_of(before), asked = object_of(now);
  if (!old.contains("sweep")) refuse("does not begin a journal of a sweep");
  std::vector<std::string> changes;
  for (const auto& [key, value] : asked.items()) {
    if (key == "trials") continue;
    const Json was = old.value(key, Json());
    if (was == value) continue;
    if (key == "space") {
      add_space_changes(was, value, changes);
    } else {
      changes.push_back(key + ": " + json_text(was) + " → " + json_text(value));
    }
  }
  return changes;
}

int64_t trials_of_head(const std::string& head) { return needed_count(object_of(head), "trials"); }

}  // namespace tanren
