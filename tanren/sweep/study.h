// Study: a search for good values with ask() and tell(). All its decisions are a pure function of
// its journal: if it is opened again on the same file, it continues as if it had never been closed.
// It returns the trials that were running then first. Not thread-safe. Called by the verb sweep and
// by programs:
//
//   tanren::Study study(space, {.sampler = "tpe", .trials = 50, .journal = "search.jsonl"});
//   while (const auto trial = study.ask()) study.tell(*trial, cost_of(trial->number("angle")));
#pragma once

#include "tanren/sweep/confirmation.h"
#include "tanren/sweep/journal.h"
#include "tanren/sweep/sampler.h"
#include "tanren/sweep/scheduler.h"
#include "tanren/sweep/space.h"
#include "tanren/sweep/trial.h"

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tanren {

struct StudyEvent;

struct StudyOptions {
  std::string sampler = "tpe";     // grid, random, tpe
  std::string scheduler = "none";  // none, asha, pbt, external
  int64_t trials = 0;              // 0: all points of a grid
  bool lower_is_better = true;
  std::string metric = "value";  // what the value is called, for reports
  uint64_t seed = 0;
  int64_t steps = 0;              // of a whole trial; asha and pbt need it
  int64_t first_rung = 0;         // asha
  int64_t reduction = 4;          // asha
  int64_t interval = 0;           // pbt
  std::filesystem::path journal;  // empty: in memory
};

class Study {
 public:
  // Opens or creates the journal. ConfigError if the options do not fit together, or differ from
  // those at the journal's beginning (lists the keys; `trials` may grow, except for pbt). Throws
  // the InputErrors of Journal, and one for a line that is not of this study.
  Study(Space space, StudyOptions options);
  ~Study();
  Study(Study&&) noexcept;

  // The next work. Its journal line is on the disk before ask() returns. Empty if there is no work
  // until tell() for a running trial, or no more work at all (is_done()). A new trial with the
  // values of an earlier one takes its result and is never returned. RunError if the journal cannot
  // be written. Always empty if the scheduler is external.
  std::optional<Trial> ask();

  // The trial reached trial.until with this value of the metric. One that is not finite means
  // diverged.
  void tell(const Trial& trial, double value);
  // The trial did not reach trial.until. `outcome` must not be finished or stopped. With refused,
  // the trial waits and runs once more, alone, at the end, unless it already ran alone. `reason`:
  // one line. `step`: the last step that it reached.
  void tell(const Trial& trial, TrialOutcome outcome, const std::string& reason = "",
            int64_t step = 0);
  // An intermediate value, for reports. A step that is not above the last reported step is ignored,
  // so a resumed trial may report again. A value that is not finite is ignored.
  void report(const Trial& trial, int64_t step, double value);

  // A confirming run of runs_to_confirm() ended. A value that is not finite means diverged; refused
  // of a run that was alone means too_large. ConfigError for a run that is not due.
  void confirm(const Confirmed& end);

  // Whether nothing runs and no trial will run. Confirming runs may still be due.
  bool is_done() const;
  // All trials, by id.
  const std::vector<TrialRecord>& records() const { return records_; }
  // The ends of confirming runs, in the order of the journal.
  const std::vector<Confirmed>& confirmed() const { return confirmed_; }
  // The ended or paused trial with the best value at the highest step; null: none has a value.
  const TrialRecord* best() const;

  const Space& space() const { return space_; }
  const StudyOptions& options() const { return options_; }

  // For a forked child process: closes the journal without unlocking it.
  void leave_journal() { journal_.leave(); }

 private:
  void open_journal();
  void check_head(const std::string& before, const std::string& now) const;
  void grow_from(int64_t trials);
  void check(const StudyEvent& event) const;
  void write(const StudyEvent& event);
  void apply(const StudyEvent& event);
  void apply_start(const StudyEvent& event);
  void apply_end(TrialRecord& record, const StudyEvent& event);
  // The event that carries out the decision. Empty if there is nothing to do now.
  std::optional<StudyEvent> event_for(const Decision& decision) const;
  Trial work_of(const TrialRecord& record) const;
  const TrialRecord& running(const Trial& trial) const;

  Space space_;
  StudyOptions options_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Scheduler> scheduler_;
  Journal journal_;
  std::vector<TrialRecord> records_;
  std::vector<Confirmed> confirmed_;
  std::unordered_map<std::string, int64_t> by_values_;  // the first trial of some values
  std::deque<int64_t> interrupted_;                     // running when the journal was opened
  std::deque<int64_t> waiting_;                         // refused once
  int64_t num_running_ = 0;
};

}  // namespace tanren
