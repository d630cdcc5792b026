// The running trials of a sweep at the foot of a terminal, below the lines that it prints, redrawn
// in place. Used by sweep_report.cpp.
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

// A head, a line for each run with its step and loss as its log has them, and one with the counts
// of outcomes and the best so far: at most `rows` lines, each of at most `columns` columns. Runs
// without room are counted.
std::string live_text(const Study& study, const std::vector<LiveRun>& runs, int64_t rows,
                      int64_t columns);

class LiveTable {
 public:
  using Clock = std::chrono::steady_clock;

  // The terminal, which must outlive the table, and how wide it is now. The table is cleared when
  // this object is destroyed.
  LiveTable(std::ostream& out, std::function<int64_t()> columns)
      : out_(out), columns_(std::move(columns)) {}
  ~LiveTable() { clear(); }
  LiveTable(const LiveTable&) = delete;
  LiveTable& operator=(const LiveTable&) = delete;

  // Often enough for eyes. Reading logs and drawing more often would take time from trials.
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
