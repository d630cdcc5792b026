// Runs the processes of a sweep. Asks the study for trials, starts a fork for each trial and at the
// end for each confirming run, watches the forks and reports to the study how they ended. This
// process keeps one thread and runs no tensor operation, so that each fork may use threads and
// tensors. Used by the verb sweep.
#pragma once

#include "tanren/sweep/confirmation.h"
#include "tanren/sweep/study.h"
#include "cli/launch/child_processes.h"
#include "cli/stop_signals.h"
#include "cli/sweep/life_signs.h"
#include "cli/sweep/sweep_place.h"
#include "cli/sweep/sweep_report.h"
#include "cli/sweep/trial_run.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren::cli {

// The share of the machine for each of the trials that run at a time. `cores`: of this machine.
std::vector<TrialShare> shares_of(const RunConfig& config, int64_t cores);

class SweepRunner {
 public:
  enum class Ending { done, stopped, no_disk };

  // All must outlive it.
  SweepRunner(const SweepPlace& place, Study& study, const Arguments& arguments,
              const Registry& registry);

  // Returns when nothing runs: the study is done, a signal came or a disk is full. RunError if the
  // journal or a report cannot be written. The trials are then asked to save, and have up to 60
  // seconds before this throws; the destructor kills the rest.
  Ending run();
  // After Ending::no_disk: the error line of the trial.
  const std::string& reason() const { return no_disk_; }
  SweepReport& report() { return report_; }

 private:
  using Clock = LifeSigns::Clock;
  enum class Stage { running, asked, killed };  // of an unresponsive trial

  struct Work {
    Trial trial;  // a confirming run has only values and `alone` here
    std::optional<ConfirmingRun> confirms;
    std::string name;
    std::filesystem::path folder;
  };
  struct Running {
    size_t child = 0;  // as in ChildEnd
    Work work;
    size_t place = 0;         // index in shares_
    int64_t said_before = 0;  // bytes of its output.txt when it began
    LifeSigns signs;
    Stage stage = Stage::running;
    Clock::time_point until = {};  // when the stage ends
  };

  void loop();
  void fill();
  bool may_start() const;
  std::optional<Work> next_work();
  std::optional<Work> next_confirming();
  void begin(const Work& work);
  size_t free_place() const;
  void wait();
  void handle(int signal);
  void pause();
  void look_for_life();
  void hear_stop();
  void ended(const ChildEnd& end);
  void tell(const Running& one, const ChildEnd& end);
  void tell_reached(const Work& work);
  void tell_failure(const Work& work, TrialOutcome outcome, const std::string& reason);
  void finish(const Work& work);
  void show();
  void stop_all();

  const SweepPlace& place_;
  Study& study_;
  std::string program_;
  const Registry& registry_;
  std::vector<TrialShare> shares_;
  SweepReport report_;
  ChildProcesses processes_{{.name = "sweep", .advice = "set sweep.concurrent lower"}};
  std::vector<std::string> environment_;
  size_t num_started_ = 0;
  std::vector<Running> running_;
  std::optional<Work> next_;         // waits until nothing else runs
  std::map<int64_t, bool> is_file_;  // by trial: whether its values are the file's own
  Interrupts interrupts_;
  int sent_ = 0;                             // the signal that asked all trials to stop; 0: none
  Clock::time_point looked_ = Clock::now();  // time of the last look_for_life()
  std::string no_disk_;
};

}  // namespace tanren::cli
