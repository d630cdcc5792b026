// What a sweep says while it runs and leaves behind: a line for each beginning and end, on a
// terminal a live table below them, the leaderboard's files, the page, the link to the best trial;
// and what of a trial's files is not kept. Used by sweep_runner.cpp.
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
  // The process of a trial, or of a confirming run with another name, begins at `step`.
  void begins(const std::string& name, const Trial& trial, int64_t step);
  // A trial was told, or a confirming run. Then also keep_files() and write_files() are due.
  void told(const Trial& trial);
  void told(const Confirmed& end);

  // Whether the live table should be drawn now, or later: how often then. Empty: there is none.
  bool wants_table() const { return table_ && table_->is_due(LiveTable::Clock::now()); }
  std::optional<std::chrono::milliseconds> table_every() const;
  void draw_table(const std::vector<LiveRun>& runs);
  void clear_table();

  // A trial's process ended, and used so much processor time.
  void used(double cpu_seconds) { time_.cpu_seconds += cpu_seconds; }

  // Removes checkpoints and weights of trials that ended, but of the best sweep.keep and of those
  // that a fork is just going on from; and of all confirming runs. Once the study is done, paused
  // trials have ended, too.
  void keep_files();
  // Writes the leaderboard, the time and the link `best`; not `at_last`: at most once a second.
  // RunError as write_file.
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
  std::optional<LiveTable> table_;  // on a terminal
  std::set<int64_t> removed_;       // trials whose files are gone
  size_t num_removed_ = 0;          // the same of confirming runs, in the study's order
  std::chrono::steady_clock::time_point written_{}, began_ = std::chrono::steady_clock::now();
  SweepTime time_;  // of earlier starts; its processor time also of this one
};

}  // namespace tanren::cli
