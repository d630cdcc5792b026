// Scheduler: decides what runs next: a new trial, a paused trial, or a fork of another. Its state
// depends only on the events of the journal in their order, not on time or threads. It knows trials
// by their numbers and costs. Called by Study, which writes decisions to the journal and passes
// each event to the scheduler, also when it replays a journal.
#pragma once

#include "tanren/sweep/trial.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

struct SchedulerOptions {
  std::string kind = "none";  // none, asha, pbt, external
  int64_t trials = 0;         // that begin with values of the sampler; may grow, but not for pbt
  int64_t steps = 0;          // of a whole trial; 0 (none only): the trial knows its end
  int64_t first_rung = 0;     // asha, ≥ 1
  int64_t reduction = 4;      // asha, ≥ 2
  int64_t interval = 0;       // pbt, ≥ 1
};

struct Decision {
  enum Kind {
    start,   // a new trial with values of the sampler
    resume,  // `trial` continues
    fork,    // a new trial replaces `trial`: continues from `source` with changed values
    wait,    // nothing until told() for a running trial
    end,     // nothing any more
  };
  Kind kind = end;
  int64_t trial = -1;
  int64_t source = -1;
  int64_t until = 0;  // steps
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // O(log trials), for pbt O(trials) once an interval.
  virtual Decision next() const = 0;

  // A trial has begun with values of the sampler. `runs` is false if it takes the result of an
  // earlier trial with the same values.
  virtual void started(int64_t trial, int64_t until, bool runs) = 0;
  virtual void resumed(int64_t trial, int64_t until) = 0;
  // `trial` is a new one and takes the place of `replaced`.
  virtual void forked(int64_t trial, int64_t until, int64_t replaced) = 0;
  // The trial reached `step`. `cost`: lower is better; infinite: the trial failed before.
  virtual void told(int64_t trial, int64_t step, double cost) = 0;
  // The trial was refused and waits; it will be resumed.
  virtual void put_off(int64_t trial) = 0;

  // Whether another program decides and writes the journal. Then next() returns wait or end, and
  // Study does not check the starts, forks and resumes of the journal against next().
  virtual bool is_external() const { return false; }
  // Whether a refused trial may wait until all others have ended.
  virtual bool lets_wait() const { return true; }
  // The step at which a whole trial ends; 0: unknown.
  virtual int64_t last_step() const = 0;
  virtual void grow(int64_t trials) = 0;
};

// ConfigError for options that do not fit together.
std::unique_ptr<Scheduler> make_scheduler(const SchedulerOptions& options);

// Defined in scheduler.cpp, asha_scheduler.cpp and pbt_scheduler.cpp.
std::unique_ptr<Scheduler> make_plain_scheduler(const SchedulerOptions& options);
std::unique_ptr<Scheduler> make_asha_scheduler(const SchedulerOptions& options);
std::unique_ptr<Scheduler> make_pbt_scheduler(const SchedulerOptions& options);

// first_rung × reduction^k below `steps`, and `steps`.
std::vector<int64_t> rungs_of(int64_t first_rung, int64_t reduction, int64_t steps);

}  // namespace tanren
