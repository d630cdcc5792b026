// What the tests of tanren predict share: trained models and a parser of their output. Torch-free.
#pragma once

#include "tests/cli/day_files.h"

#include <sys/ioctl.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tanren::testing {

using Table = std::vector<std::vector<std::string>>;

// Cells of a CSV without quotes, by lines.
inline Table table_of(const std::string& text) {
  Table table;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    size_t begin = 0;
    for (size_t comma = line.find(','); comma != std::string::npos; comma = line.find(',', begin)) {
      cells.push_back(line.substr(begin, comma - begin));
      begin = comma + 1;
    }
    cells.push_back(line.substr(begin));
    table.push_back(cells);
  }
  return table;
}

class PredictFiles : public DayFiles {
 protected:
  // A table without labels. It has the columns of training in another order, and one column of its
  // own.
  static std::string new_rows(int count) {
    std::string text = "id,b,a\n";
    for (int i = 0; i < count; ++i) {
      text += "r" + std::to_string(i) + ",0.5," + std::to_string(i * 7 % 23) + "\n";
    }
    return text;
  }

  void train(const std::string& config, const std::string& more = "") const {
    const auto result = tanren("run " + config + " --quiet --out out" + more);
    ASSERT_EQ(result.code, 0) << result.output;
  }
  std::string read(const std::string& name) const { return read_file(at(name)); }
  int64_t lines_in(const std::string& name) const {
    const std::string text = read(name);
    return std::count(text.begin(), text.end(), '\n');
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(at(name)); }

  // Whether `condition` becomes true within a minute.
  static bool comes_true(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  // Whether the process has a file called `name` open.
  static bool has_open(pid_t process, const std::string& name) {
    namespace fs = std::filesystem;
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(proc(process) / "fd", gone)) {
      if (fs::read_symlink(entry.path(), gone).filename() == name) return true;
    }
    return false;
  }
  // Whether the process has a handler of SIGTERM.
  static bool hears_sigterm(pid_t process) {
    std::ifstream status(proc(process) / "status");
    for (std::string key; status >> key;) {
      uint64_t signals = 0;
      if (key == "SigCgt:" && status >> std::hex >> signals) return (signals >> (SIGTERM - 1)) & 1U;
    }
    return false;
  }
  // The number of unread bytes in a pipe.
  static int unread(int pipe) {
    int bytes = 0;
    return ::ioctl(pipe, FIONREAD, &bytes) == 0 ? bytes : -1;
  }

 private:
  static std::filesystem::path proc(pid_t process) {
    return std::filesystem::path("/proc") / std::to_string(process);
  }
};

}  // namespace tanren::testing
