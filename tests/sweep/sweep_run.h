// For tests of the verb sweep as a user starts it, on the small classifier of CommandRun.
// Torch-free. Included by tests only.
#pragma once

#include "tests/support/command_run.h"

#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <set>

namespace tanren::testing {

// Waits up to a minute for `condition`. Returns whether it became true.
template <typename Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    ::usleep(10'000);
  }
  return false;
}

class SweepRun : public CommandRun {
 protected:
  static std::string dimension(const std::string& key, const std::string& lines) {
    return "[[sweep.space]]\nkey = \"" + key + "\"\n" + lines + "\n";
  }
  // Writes NAME.toml: the classifier's config with a [sweep] of these lines.
  void write(const std::string& name, const std::string& keys, const std::string& space) {
    const std::string text = config("train.csv", "eval.csv") + "[sweep]\n" + keys + "\n" + space;
    folder_.file(name + ".toml", text);
  }
  // Starts `program` in the test's folder, as a process that signals reach.
  Child start(const std::string& program, const std::vector<std::string>& words,
              const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> command = {program};
    command.insert(command.end(), words.begin(), words.end());
    return forked_child(command, environment);
  }

  nlohmann::json leaderboard(const std::string& out) const {
    return nlohmann::json::parse(read_file(at(out) / "leaderboard.json"));
  }
  // The entries by trial; expects each once.
  std::vector<nlohmann::json> trials(const std::string& out) const {
    const nlohmann::json board = leaderboard(out);
    std::vector<nlohmann::json> found(board["trials"].size());
    for (const auto& entry : board["trials"]) {
      const auto id = entry["trial"].get<size_t>();
      EXPECT_LT(id, found.size());
      if (id >= found.size()) continue;
      EXPECT_TRUE(found[id].is_null()) << "trial " << id << " is there twice";
      found[id] = entry;
    }
    return found;
  }
  // The numbers of the sweep's page.
  nlohmann::json page_data(const std::string& out) const {
    const std::string page = read_file(at(out) / "sweep.html"), begin = "id=\"sweep-data\">";
    const size_t from = page.find(begin);
    EXPECT_NE(from, std::string::npos) << page;
    if (from == std::string::npos) return {};
    const size_t end = page.find("</script>", from);
    return nlohmann::json::parse(page.substr(from + begin.size(), end - from - begin.size()));
  }
  // The processes of the trials that the process `sweep` has started.
  static std::vector<pid_t> trial_processes(pid_t sweep) {
    std::vector<pid_t> found;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
      std::ifstream file(entry.path() / "stat");
      std::string line;
      std::getline(file, line);
      const size_t name_end = line.rfind(')');
      if (name_end == std::string::npos || line.find("(sweep-guard)") != std::string::npos)
        continue;
      char state = 0;
      pid_t parent = 0;
      std::istringstream(line.substr(name_end + 1)) >> state >> parent;
      if (parent == sweep) found.push_back(std::stoi(line));
    }
    return found;
  }
  static std::string trial(int64_t id) {
    const std::string number = std::to_string(id);
    return "/trials/" + std::string(4 - number.size(), '0') + number;
  }
  // The --set arguments of a trial's values, for a shell.
  static std::string sets(const nlohmann::json& entry) {
    std::string text;
    for (const auto& [key, value] : entry["values"].items()) {
      text += " --set '" + key + "=" + value.get<std::string>() + "'";
    }
    return text;
  }
  std::vector<nlohmann::json> journal(const std::string& out) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(at(out) / "journal.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

}  // namespace tanren::testing
