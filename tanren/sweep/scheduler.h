// Scheduler: decides what runs next: a new trial, one that goes on, or a fork of another. Its state
// is what the events of the journal made of it, in their order; time and threads do not enter. It
// knows trials by their numbers and costs. Called by Study, which turns decisions into lines of the
// journal and tells the scheduler each event, also of a replayed journal.
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
    resume,  // `trial` goes on from where it stands
    fork,    // a new trial goes on from `source`, with its values changed, in place of `trial`
    wait,    // nothing until a running trial is told
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

  // A trial has begun with values of the sampler. `runs`: false if an earlier trial of the same
  // values answers for it.
  virtual void started(int64_t trial, int64_t until, bool runs) = 0;
  virtual void resumed(int64_t trial, int64_t until) = 0;
  // `trial` is a new one and takes the place of `replaced`.
  virtual void forked(int64_t trial, int64_t until, int64_t replaced) = 0;
  // The trial reached `step`. `cost`: lower is better; infinite: it failed on the way.
  virtual void told(int64_t trial, int64_t step, double cost) = 0;
  // The trial was refused and waits; it will be resumed.
  virtual void put_off(int64_t trial) = 0;

  // Whether another program decides and writes the journal. Then next() is wait or end, and each
  // start, fork and resume is as it must be.
  virtual bool is_external() const { return false; }
  // Whether a refused trial may wait for the end.
  virtual bool lets_wait() const { return true; }
  // The step at which a whole trial ends; 0: unknown.
  virtual int64_t last_step() const = 0;
  virtual void grow(int64_t trials) = 0;
};

// ConfigError for options that do not fit together.
std::unique_ptr<Scheduler> make_scheduler(const SchedulerOptions& options);

// A file each.
std::unique_ptr<Scheduler> make_plain_scheduler(const SchedulerOptions& options);
std::unique_ptr<Scheduler> make_asha_scheduler(const SchedulerOptions& options);
std::unique_ptr<Scheduler> make_pbt_scheduler(const SchedulerOptions& options);

// first_rung × reduction^k below `steps`, and `steps`.
std::vector<int64_t> rungs_of(int64_t first_rung, int64_t reduction, int64_t steps);

}  // namespace tanren
