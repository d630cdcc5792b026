// The output of a sweep. While it runs: a line for each beginning and end, and on a terminal a live
// table below them. In its folder: the leaderboard's files, the page and the link to the best
// trial. Also removes those files of trials that are not kept. Used by sweep_runner.cpp.
#pragma once

#include "tanren/sweep/study.h"
#include "cli/sweep/live_table.h"
#include "cli/sweep/page_file.h"
#include "cli/sweep/sweep_place.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren::cli {

class SweepReport {
 public:
  // Both must outlive it. `quiet`: prints nothing.
  SweepReport(const SweepPlace& place, const Study& study, bool quiet);

  void say(const std::string& line);
  // The process of a trial, or of a confirming run (which has another name), begins at `step`.
  void begins(const std::string& name, const Trial& trial, int64_t step);
  // The end of a trial, or of a confirming run, was reported to the study. Call keep_files() and
  // write_files() after this.
  void told(const Trial& trial);
  void told(const Confirmed& end);

  // Whether the live table should be drawn now. table_every(): how often it is drawn; empty: there
  // is no table.
  bool wants_table() const { return table_ && table_->is_due(LiveTable::Clock::now()); }
  std::optional<std::chrono::milliseconds> table_every() const;
  void draw_table(const std::vector<LiveRun>& runs);
  void clear_table();

  // Adds the processor time of a trial's process that ended.
  void used(double cpu_seconds) { time_.cpu_seconds += cpu_seconds; }

  // Removes the checkpoints and weights of trials that ended, and of all confirming runs. Keeps
  // those of the best sweep.keep trials, and those from which a fork is about to start. Once the
  // study is done, paused trials count as ended.
  void keep_files();
  // Writes the leaderboard, the time and the link `best`. Unless `at_last`, writes at most once a
  // second. RunError as write_file.
  void write_files(bool at_last);
  // Writes sweep.html. RunError as write_file.
  void write_page() const;

 private:
  bool is_kept(const TrialRecord& record) const;
  void link_best() const;
  SweepTime time() const;

  const SweepPlace& place_;
  const Study& study_;
  bool quiet_;
  std::optional<LiveTable> table_;  // empty: stdout is no terminal, or quiet
  std::set<int64_t> removed_;       // trials whose files are gone
  size_t num_removed_ = 0;          // confirming runs whose files are gone, in the study's order
  std::chrono::steady_clock::time_point written_{}, began_ = std::chrono::steady_clock::now();
  SweepTime time_;  // of earlier starts; the processor time includes this start
};

}  // namespace tanren::cli
