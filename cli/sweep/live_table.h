// A live table of a sweep's running trials at the bottom of a terminal, redrawn in place below the
// lines that the sweep prints. Used by sweep_report.cpp.
#pragma once

#include "tanren/sweep/study.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tanren::cli {

// A run that a process trains now.
struct LiveRun {
  std::string name;    // "trial 0007"
  std::string values;  // "optimizer.kind=sgd"
  std::filesystem::path folder;
  int64_t until = 0;  // the step it trains to; 0: unknown
};

// A header, a line for each run with the step and loss from its log, and a line with the counts of
// outcomes and the best so far. At most `rows` lines, each of at most `columns` columns. If some
// runs have no room, a line has their number.
std::string live_text(const Study& study, const std::vector<LiveRun>& runs, int64_t rows,
                      int64_t columns);

class LiveTable {
 public:
  using Clock = std::chrono::steady_clock;

  // `out` is the terminal and must outlive the table; `columns` returns its current width. The
  // table is cleared when this object is destroyed.
  LiveTable(std::ostream& out, std::function<int64_t()> columns)
      : out_(out), columns_(std::move(columns)) {}
  ~LiveTable() { clear(); }
  LiveTable(const LiveTable&) = delete;
  LiveTable& operator=(const LiveTable&) = delete;

  // Reading logs and drawing more often would take time from trials.
  static constexpr std::chrono::milliseconds kEvery{500};
  bool is_due(Clock::time_point now) const { return now - drawn_at_ >= kEvery; }

  // Draws whole lines over those drawn before.
  void draw(const std::string& text, Clock::time_point now);
  // Removes the lines: what is printed next stands in their place.
  void clear();

 private:
  // Moves the cursor to the table's first row.
  std::string to_top() const;

  std::ostream& out_;
  std::function<int64_t()> columns_;
  std::vector<int64_t> widths_;  // of the lines above the cursor
  Clock::time_point drawn_at_{};
};

}  // namespace tanren::cli
