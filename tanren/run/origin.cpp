#include "tanren/run/origin.h"

#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/base/json_text.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/state.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/comm/exchange.h"
#include "tanren/config/kinds.h"
#include "tanren/run/run_folder.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

namespace {

void add_facts(const std::string& name, const Dataset& data, Facts& facts) {
  facts.emplace_back("samples of " + name, to_text(data.size()));
  for (const DataPart& part : data.parts()) {
    facts.emplace_back(part.name + " of " + name, hash_text(part.hash));
  }
}

const std::string* find(const Facts& facts, const std::string& name) {
  const auto found = std::find_if(facts.begin(), facts.end(),
                                  [&](const auto& fact) { return fact.first == name; });
  return found == facts.end() ? nullptr : &found->second;
}

// How an error line names the keys that turn off decisions by evaluations. Empty for a plateau
// schedule: without it a run would resume at a rate that no evaluation has lowered.
std::string way_to_decide_nothing(const RunConfig& config) {
  if (reads_evaluations(config)) return "";
  std::vector<std::string> keys;
  if (config.checkpoint.best > 0) keys.emplace_back("checkpoint.best = 0");
  if (config.early_stop.patience > 0) keys.emplace_back("early_stop.patience = 0");
  return ", or set " + join(keys, " and ") + ", so that none decides";
}

bool was_evaluated(const fs::path& step_folder) {
  const State run{.values = run_values_of(step_folder)};
  const std::string judged = "selection.judged_step";
  return run.values.count(judged) > 0 && value_of<int64_t>(run, judged) >= 0;
}

// The TOML text of a value is also JSON, except for the text of a value that is not set.
OrderedJson json_of(const std::string& toml) {
  OrderedJson json = parse_ordered_json(toml);
  return json.is_discarded() ? OrderedJson(toml) : json;
}

}  // namespace

Facts data_facts(const Dataset& train, const Dataset* eval) {
  Facts facts;
  add_facts("data.train", train, facts);
  if (eval != nullptr) add_facts("data.eval", *eval, facts);
  return facts;
}

std::string to_json(const Origin& origin) {
  OrderedJson data = OrderedJson::object(), changes = OrderedJson::array();
  for (const auto& [name, value] : origin.data) data[name] = value;
  for (const auto& [step, key] : origin.changes) {
    changes.push_back({{"step", step}, {"key", key.key}, {"before", key.before}, {"now", key.now}});
  }
  OrderedJson json{{"data", data}, {"changes", changes}};
  for (const PlanLine& line : origin.fork) {
    const char* const source = line.source == Source::asked ? "asked" : "planned";
    json["fork"].push_back(
        {{"key", line.key}, {"value", line.value}, {"source", source}, {"reason", line.reason}});
  }
  return exact_json_text(json, 1) + "\n";
}

Origin read_origin(const fs::path& step_folder) {
  return parse_origin(origin_of(step_folder), step_folder);
}

Origin parse_origin(const std::string& text, const fs::path& step_folder) {
  if (text.empty()) return {};
  Origin origin;
  try {
    const OrderedJson json = parse_ordered_json(text);
    for (const auto& [name, value] : json.at("data").items()) {
      origin.data.emplace_back(name, value.get<std::string>());
    }
    for (const auto& change : json.at("changes")) {
      origin.changes.push_back(
          {change.at("step").get<int64_t>(),
           {change.at("key").get<std::string>(), change.at("before").get<std::string>(),
            change.at("now").get<std::string>()}});
    }
    for (const auto& line : json.value("fork", OrderedJson::array())) {
      const bool is_asked = line.at("source").get<std::string>() == "asked";
      origin.fork.push_back({line.at("key").get<std::string>(), line.at("value").get<std::string>(),
                             is_asked ? Source::asked : Source::planned,
                             line.at("reason").get<std::string>()});
    }
  } catch (const OrderedJson::exception&) {
    throw CheckpointError("[checkpoint] " + (step_folder / "origin.json").string() +
                          " is damaged; use an older step folder, or a copy of this one");
  }
  return origin;
}

void check_data_unchanged(Communicator& ranks, const Facts& saved, const Facts& now,
                          const fs::path& step_folder, const RunConfig& config) {
  const bool decide = evaluations_decide(config);
  bool told = false;
  for (const auto& [name, value] : now) {
    const std::string* before = find(saved, name);
    if (before == nullptr || *before == value) continue;
    const bool is_evaluated = name.ends_with(" of data.eval");
    if (is_evaluated && (!decide || !was_evaluated(step_folder))) {
      if (!std::exchange(told, true) && ranks.rank() == 0) {
        log(
            fmt::format("[data] data.eval is other data after step {}: evaluations cannot be "
                        "compared with those before",
                        to_text(step_of(step_folder))));
      }
      continue;
    }
    const bool is_count = name.starts_with("samples of ");
    const std::string what =
        is_count ? value + " " + name + ", " + step_folder.string() + " was made with " + *before
                 : name + " are not those that " + step_folder.string() + " was made with";
    if (ranks.world_size() > 1) settle(ranks);
    const std::string part = is_evaluated ? "data.eval" : "data.train";
    const SourceOptions& source = is_evaluated ? config.data.eval : config.data.train;
    const bool has_pictures = source.kind == "images" || source.kind == "pairs";
    const std::string damaged = has_pictures && source.broken != "skip"
                                    ? " (where one is damaged: with " + part + ".broken = \"skip\")"
                                    : "";
    throw DataError(
        fmt::format("[data] {}{}; either put these data back{}{}, or start another run (run.name)",
                    what, is_evaluated ? ", and evaluations decide over this run" : "", damaged,
                    is_evaluated ? way_to_decide_nothing(config) : ""));
  }
}

std::vector<ConfigChange> changes_until(const fs::path& step_folder, const RunConfig& config) {
  std::vector<ConfigChange> changes = read_origin(step_folder).changes;
  const RunConfig written = recorded_config(step_folder);
  for (auto& change : changes_on_request(written, config)) {
    changes.push_back({step_of(step_folder), std::move(change)});
  }
  return changes;
}

std::vector<std::string> overtaken_keys(const std::vector<ConfigChange>& changes,
                                        const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested) {
  std::vector<std::string> keys;
  for (const KeyChange& difference : changes_on_request(before, now)) {
    const bool had_it = std::any_of(changes.begin(), changes.end(), [&](const auto& change) {
      return change.key.key == difference.key && change.key.before == difference.now;
    });
    if (had_it && requested.count(difference.key) == 0) keys.push_back(difference.key);
  }
  return keys;
}

std::string change_line(const ConfigChange& change) {
  return fmt::format("[run] {} is {} after step {}, {} until then", change.key.key, change.key.now,
                     to_text(change.step), change.key.before);
}

void add_origin(Plan& plan, const Origin& origin) {
  plan.lines.insert(plan.lines.end(), origin.fork.begin(), origin.fork.end());
  for (const auto& [step, key] : origin.changes) {
    const std::string change =
        fmt::format("at step {}: {} → {}", to_text(step), key.before, key.now);
    const auto line =
        std::find_if(plan.lines.begin(), plan.lines.end(),
                     [&key = key](const PlanLine& known) { return known.key == key.key; });
    if (line == plan.lines.end()) {
      plan.lines.push_back({key.key, key.now, Source::asked, "changed " + change});
    } else {
      line->value = key.now;
      line->reason += "; " + change;
    }
  }
}

std::string log_line(const ConfigChange& change, int64_t from_attempt) {
  const OrderedJson values{{"before", json_of(change.key.before)},
                           {"now", json_of(change.key.now)}};
  return exact_json_text(OrderedJson{{"from_attempt", from_attempt},
                                     {"step", change.step},
                                     {"changed", {{change.key.key, values}}}});
}

}  // namespace tanren
