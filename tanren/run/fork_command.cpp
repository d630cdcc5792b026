#include "tanren/run/fork_command.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/config/identity.h"
#include "tanren/config/validate.h"
#include "tanren/run/earlier_summary.h"
#include "tanren/run/run_folder.h"

#include <algorithm>
#include <string_view>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// The first of <folder>-fork, <folder>-fork-2, … that does not exist. "." and ".." are made
// absolute first, because they have no name to which that could be added.
fs::path new_folder_beside(const fs::path& folder) {
  fs::path plain = folder.has_filename() ? folder : folder.parent_path();
  const std::string name = plain.filename().string();
  if (name.empty() || name == "." || name == "..") {
    plain = fs::absolute(folder).lexically_normal();
    if (!plain.has_filename()) plain = plain.parent_path();
  }
  std::error_code none;
  const std::string first = plain.string() + "-fork";
  std::string found = first;
  for (int i = 2; fs::exists(found, none); ++i) found = fmt::format("{}-{}", first, i);
  return found;
}

// Keys of [model] that no tensor's name or shape depends on.
constexpr std::string_view kWithoutShape[] = {"activation",
                                              "dropout",
                                              "loss",
                                              "label_smoothing",
                                              "loss_chunk",
                                              "embedding_dropout",
                                              "attention_dropout",
                                              "residual_dropout",
                                              "fused_attention_dropout",
                                              "layer_norm_eps",
                                              "initializer_range",
                                              "pad_token",
                                              "classifier_dropout",
                                              "memory_format",
                                              "perceptual",
                                              "freeze",
                                              "unfreeze"};

bool may_change_shapes(const std::string& key) {
  if (key.ends_with(".classes") && key.starts_with("data.")) return true;
  constexpr std::string_view kModel = "model.";
  if (!key.starts_with(kModel)) return false;
  return std::find(std::begin(kWithoutShape), std::end(kWithoutShape),
                   std::string_view(key).substr(kModel.size())) == std::end(kWithoutShape);
}

// Keys that are not copied into the fork: how its run began, and the run's name.
bool is_of_start(const std::string& key) {
  return key == "run.name" || key == "run.fork_from" || key.ends_with(".init_from") ||
         key == "model.init_skip" || key == "model.init_rename";
}

// Whether another value of the key may change the steps of an epoch. A moved path may hold other
// data.
bool changes_epochs(const std::string& key) {
  return key == "batch.global_batch" || key == "data.last" || key == "run.seed" ||
         key == "data.shuffle" || key == "data.split" || key.starts_with("data.train.");
}

// Whether `key`, at its default in `config`, has no meaning beside the others.
bool is_meaningless(RunConfig config, const std::string& key) {
  if (config.asked.count(key) > 0) return false;
  config.asked.insert(key);
  const auto found = meaningless_keys(config, kinds_of(config));
  return std::any_of(found.begin(), found.end(),
                     [&](const auto& each) { return each.first == key; });
}

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr const char* kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-._/=:,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string set_option(const std::string& key, const std::string& value) {
  const std::string given = value == "not set" ? "none" : value;
  return "--set " + key + "=" + (given.empty() ? "" : shell_word(given));
}

std::string fork_command(const fs::path& folder, const fs::path& out,
                         const std::vector<std::string>& sets) {
  std::string command =
      fmt::format("tanren run {} --fork --out {}", shell_word(folder.string()),
                  shell_word((out.empty() ? new_folder_beside(folder) : out).string()));
  for (const std::string& set : sets) command += " --set " + shell_word(set);
  return command;
}

std::string command_to_fork(const fs::path& folder, int64_t step, const RunConfig& before,
                            const RunConfig& config) {
  if (config.run.steps && *config.run.steps <= step) return "";
  if (!way_to_go_on(folder, before, config).empty()) return "";
  // A run that is a fork itself may have begun its data again on the way.
  if (config.run.epochs && !before.run.fork_from.empty()) return "";
  std::string options;
  std::vector<std::string> sets;
  for (const auto& [key, old, now] : all_changes(before, config)) {
    if (is_of_start(key) || is_meaningless(config, key)) continue;
    if (may_change_shapes(key) || (config.run.epochs && changes_epochs(key))) return "";
    options += " " + set_option(key, now);
    sets.push_back(key + "=" + (now == "not set" ? "none" : now));
  }
  try {
    (void)config_of_folder(folder, sets, kinds_of(config));
  } catch (const ConfigError&) {
    return "";
  }
  return fork_command(folder, {}, {}) + options;
}

}  // namespace tanren
