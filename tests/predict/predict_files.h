// What the tests of tanren predict share: trained models and a parser of their output. Torch-free.
#pragma once

#include "tests/cli/day_files.h"

#include <algorithm>
#include <sstream>
#include <string>
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
  // A table without labels; the columns of training in another order, and one of its own.
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
};

}  // namespace tanren::testing
