#include "tanren/run/earlier_summary.h"

#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/state.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/step_folders.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

using SummaryJson = nlohmann::ordered_json;

fs::path summary_in(const fs::path& folder) { return folder / "summary.json"; }

// Null: there is none.
SummaryJson summary_of(const fs::path& folder) {
  const fs::path file = summary_in(folder);
  return fs::exists(file) ? parse_ordered_json(read_file(file)) : SummaryJson();
}

// The text of a key; empty if there is none.
std::string text_of(const SummaryJson& summary, const char* key) {
  const auto found = summary.find(key);  // end() if it is no object
  return found != summary.end() && found->is_string() ? found->get<std::string>() : "";
}

void set_back(SummaryJson& summary, const RunCounts& counts) {
  if (summary["attempts"] != SummaryJson(counts.attempts)) {  // the last update is undone
    std::vector<std::string> losses;
    for (const auto& item : summary.items()) {
      if (item.key().starts_with("final_loss")) losses.push_back(item.key());
    }
    for (const std::string& key : losses) summary.erase(key);
    summary["final_loss"] = nullptr;
  }
  summary["steps"] = counts.steps;
  summary["attempts"] = counts.attempts;
  summary["skipped_steps"] = counts.attempts - counts.steps;
}

// Whether a start that failed before its loop knows the value.
bool is_known_before_the_loop(std::string_view key, const SummaryJson& value) {
  constexpr std::array<std::string_view, 6> kKnown = {"steps",  "attempts", "skipped_steps",
                                                      "status", "reason",   "cause"};
  const bool is_known = std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end();
  return is_known || (key == "final_loss" && !value.is_null());
}

}  // namespace

RunCounts counts_at(const std::optional<fs::path>& checkpoint) {
  if (!checkpoint) return {};
  const int64_t steps = step_of(*checkpoint);
  try {
    const State run{.values = run_values_of(*checkpoint)};
    return {steps, value_of<int64_t>(run, "attempt")};
  } catch (const std::exception&) {  // the start itself reports the damage
    return {steps, steps};
  }
}

bool counts_steps(const fs::path& folder) {
  const SummaryJson json = summary_of(folder);
  if (text_of(json, "status") == "failed") return false;
  const auto steps = json.find("steps");  // end() if it is no object
  return steps != json.end() && steps->is_number_integer() && steps->get<int64_t>() > 0;
}

std::string way_to_go_on(const fs::path& folder, const RunConfig& before, const RunConfig& now) {
  const SummaryJson json = summary_of(folder);
  if (text_of(json, "status") != "finished" || !text_of(json, "unwritten").empty()) return "";
  const std::string reason = text_of(json, "reason");
  if (!reason.empty()) {
    // A longer run would stop again at once.
    const bool patient =
        now.early_stop.patience == 0 || now.early_stop.patience > before.early_stop.patience;
    return patient ? "" : "(" + reason + "); raise early_stop.patience (0: off) to resume";
  }
  const bool grown = now.run.steps.value_or(0) > before.run.steps.value_or(0) ||
                     now.run.epochs.value_or(0) > before.run.epochs.value_or(0);
  return grown ? "" : "; raise run.steps or run.epochs to resume";
}

void reopen(const fs::path& folder, const std::optional<fs::path>& resume_from) {
  SummaryJson json = summary_of(folder);
  const std::string status = text_of(json, "status");
  const bool has_failed = status == "failed";
  if (has_failed && !resume_from) fs::remove(summary_in(folder));
  if (has_failed ? !resume_from : status != "finished") return;
  json["status"] = "stopped";
  for (const std::string key : {"reason", "cause", "unwritten"}) json.erase(key);
  if (has_failed) set_back(json, counts_at(resume_from));
  write_file(summary_in(folder), exact_json_text(json, 2) + "\n");
}

std::string failed_summary(const fs::path& folder, const Summary& summary, bool has_trained) {
  const SummaryJson before = summary_of(folder);
  SummaryJson json = parse_ordered_json(to_json(summary));
  if (!before.is_object()) return to_json(summary);
  for (const auto& item : before.items()) {
    const bool is_own = json.contains(item.key()) &&
                        (has_trained || is_known_before_the_loop(item.key(), json[item.key()]));
    if (!is_own) json[item.key()] = item.value();
  }
  return exact_json_text(json, 2);
}

}  // namespace tanren
