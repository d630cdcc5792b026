#include "cli/sweep/sweep_place.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/identity.h"
#include "cli/sweep/silence.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

ConfigSource read_source(const fs::path& file) {
  const nlohmann::json json = parse_json(read_file(file));
  try {
    return {.text = json.at("text").get<std::string>(),
            .file = json.at("file").get<std::string>(),
            .sets = json.at("sets").get<std::vector<std::string>>()};
  } catch (const nlohmann::json::exception&) {
    throw InputError("[sweep] " + file.string() +
                     " is not as a sweep wrote it; begin another sweep in another folder");
  }
}

ConfigSource named_source(const Arguments& arguments, const KnownKinds& known) {
  const fs::path file = arguments.file;
  std::error_code none;
  if (!fs::is_directory(file, none)) return config_source(file, arguments.sets, known);
  if (!fs::exists(file / kSweepSource, none)) {
    throw ConfigError("[sweep] " + file.string() + " is no folder of a sweep (no " + kSweepSource +
                      " in it); give a config file or the folder of a sweep");
  }
  if (!arguments.out.empty()) {
    throw ConfigError("[sweep] " + file.string() +
                      " goes on in its own folder; drop --out, or give the config file");
  }
  return with_sets(read_source(file / kSweepSource), arguments.sets, known);
}

void check_is_sweep(const Arguments& arguments, const RunConfig& config) {
  if (config.sweep.space.empty()) {
    throw ConfigError("[sweep] " + arguments.file +
                      " has no [[sweep.space]]; add a table for each key whose values are "
                      "searched");
  }
  if (config.run.stop_after) {
    throw ConfigError("[sweep] run.stop_after is what ends trials at their rungs; drop it");
  }
}

// The changes that matter to a sweep's results. The changes of [sweep] are not among them, because
// the journal has them.
std::vector<std::string> changes_of(const RunConfig& before, const RunConfig& now) {
  std::vector<std::string> lines;
  const std::vector<KeyChange> defining = defining_changes(before, now);
  const auto defines = [&](const std::string& key) {
    return std::any_of(defining.begin(), defining.end(),
                       [&](const KeyChange& change) { return change.key == key; });
  };
  for (const KeyChange& change : all_changes(before, now)) {
    const std::string& key = change.key;
    const bool judges = key.starts_with("evaluate.") || key.starts_with("data.eval.") ||
                        key.starts_with("early_stop.");
    const bool counts = key == "run.steps" || key == "run.epochs";
    if (judges || counts || defines(key)) {
      lines.push_back(fmt::format("{}: {} → {}", key, change.before, change.now));
    }
  }
  return lines;
}

void check_same(const fs::path& folder, const ConfigSource& source, const RunConfig& now,
                const KnownKinds& known) {
  const ConfigSource recorded = read_source(folder / kSweepSource);
  if (recorded.text == source.text && recorded.sets == source.sets &&
      recorded.file == source.file) {
    return;
  }
  const std::vector<std::string> changes = changes_of(config_of(recorded, {}, known), now);
  if (changes.empty()) return;
  throw ConfigError(fmt::format(
      "[sweep] {} is of a sweep of another config ({}); go back to it, or name another folder with "
      "--out",
      folder.string(), join(changes, "; ")));
}

// Whether a new sweep may use the folder. It may hold a finder's results, or what is left of a
// start that was killed before it wrote sweep.json.
bool is_free(const fs::path& folder) {
  std::error_code none;
  if (!fs::exists(folder, none)) return true;
  if (!fs::is_directory(folder, none)) return false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "journal.jsonl" && name != kFound && !name.starts_with(".tmp-")) return false;
  }
  return true;
}

}  // namespace

fs::path SweepPlace::trial(int64_t id) const { return trials() / fmt::format("{:04}", id); }

SweepPlace read_sweep(const Arguments& arguments, const Registry& registry) {
  const Silence silence;
  const KnownKinds known = registry.known();
  SweepPlace place{.folder = {}, .source = named_source(arguments, known), .config = {}};
  place.config = config_of(place.source, {}, known);
  check_is_sweep(arguments, place.config);
  const Space space = space_of(place.config);
  const std::vector<std::string> problems = corner_problems(place.source, space, known);
  if (!problems.empty()) throw ConfigError(join(problems, "\n"));
  std::error_code none;
  if (fs::is_directory(arguments.file, none)) {
    place.folder = arguments.file;
  } else {
    place.folder = arguments.out.empty() ? fs::path("sweeps") / place.config.run.name
                                         : fs::path(arguments.out);
  }
  place.has_begun = fs::exists(place.folder / kSweepSource, none);
  if (place.has_begun) {
    check_same(place.folder, place.source, place.config, known);
  } else if (!is_free(place.folder)) {
    throw InputError("[sweep] " + place.folder.string() +
                     " holds other files and no sweep; name another folder with --out");
  }
  return place;
}

fs::path SweepPlace::confirming(const ConfirmingRun& run) const {
  const std::string whose = run.trial ? fmt::format("{:04}", *run.trial) : "file";
  return folder / "confirm" / fmt::format("{}-seed-{}", whose, run.seed);
}

void check_trials(const SweepPlace& place, int64_t num_trials) {
  std::error_code none;
  for (const fs::path& parent : {place.trials(), place.folder / "confirm"}) {
    for (const auto& entry : fs::directory_iterator(parent, none)) {
      const std::string name = entry.path().filename().string();
      const std::string number = name.substr(0, name.find("-seed-"));
      int64_t id = 0;  // the file's own run (no trial) counts as the first trial
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), id);
      const bool is_trial = error == std::errc() && end == number.data() + number.size();
      if ((!is_trial && number != "file") || id < num_trials) continue;
      throw InputError(fmt::format(
          "[sweep] {} has {} trials, and {} is there; put back the journal that belongs to it, or "
          "begin another sweep in another folder",
          place.journal().string(), num_trials, entry.path().string()));
    }
  }
}

void write_source(const SweepPlace& place) {
  const nlohmann::ordered_json json = {{"file", place.source.file.string()},
                                       {"sets", place.source.sets},
                                       {"text", place.source.text}};
  write_file(place.folder / kSweepSource, exact_json_text(json, 2) + "\n");
}

}  // namespace tanren::cli
