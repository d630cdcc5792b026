// What a run tells its readers: plain data. Sinks get const references; they cannot reach the run.
#pragma once

#include "tanren/base/verdict.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

using NamedValues = std::vector<std::pair<std::string, double>>;

struct ObjectiveReport {
  std::string name;
  int64_t step = 0;          // applied updates of this objective, this one included if applied
  double loss = 0;           // weighted sum of the terms, each divided by its global count
  NamedValues terms;         // each term divided by its global count
  double grad_norm = 0;      // unscaled, before clipping
  double learning_rate = 0;  // of this update
  double loss_scale = 1;     // that this update ran with
  Verdict verdict;
  std::optional<Spike> spike;            // with cause spike
  std::optional<double> flush_share;     // gradient elements that fp16 would flush to zero
  std::optional<double> overflow_share;  // and that it would overflow
};

struct StepReport {
  int64_t attempt = 0;  // global batches consumed, this one included
  int64_t step = 0;     // applied updates of the first objective, this one included if applied
  int64_t epoch = 0;
  int64_t samples = 0;     // in this global batch, over all ranks
  int64_t tokens = 0;      // in it, where the data counts them; 0: it does not
  int64_t microsteps = 0;  // on this rank
  std::vector<ObjectiveReport> objectives;
  std::string culprit;          // microbatch and parameter that are not finite, or the count of 0
  bool stop_requested = false;  // of some of several ranks, while this update ran

  // Not part of what is repeatable.
  double seconds = 0;        // the whole step, waiting for data included
  double wait_seconds = 0;   // of it, waiting for data
  int64_t memory_bytes = 0;  // peak resident memory so far (CPU), peak allocated (CUDA)
};

// What an evaluation says of one class. A share of nothing is 0, as in scikit-learn.
struct ClassReport {
  int64_t targets = 0;      // that are of this class
  int64_t predictions = 0;  // that say so
  double precision = 0;
  double recall = 0;
  double f1 = 0;
  std::optional<double> auroc;  // against all others; NaN if either has no target
};

struct EvaluationReport {
  int64_t step = 0;
  int64_t samples = 0;
  int64_t tokens = 0;     // where the data counts them
  NamedValues values;     // "loss", "accuracy", "top5", …
  bool averaged = false;  // of the averaged weights
  std::string ends_run;   // why the run ends with this evaluation; empty: it goes on
  double seconds = 0;
  std::vector<ClassReport> classes;       // empty unless a metric is about classes
  std::vector<int64_t> confusion_matrix;  // if asked for: row = target, column = prediction
  std::optional<double> auroc_error;      // no AUROC here is further from the exact one; 0: exact
};

// A shortage of memory that the run recovered from.
struct Incident {
  int64_t attempt = 0, step = 0;  // in which, counted as in StepReport
  std::string operation;          // torch's operator; empty: unknown
  std::string block;              // of the model; empty: outside of any, or unknown
  bool in_backward = false;
  int64_t bytes = 0;  // asked for; 0: unknown
  std::string message;
  int64_t microbatch = 0, next_microbatch = 0;  // samples that did not fit, and that follow
  int64_t global_batch = 0;                     // which stays
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;  // of the batch's fields
  int64_t limit_bytes = 0;                                           // 0: none
  std::vector<std::pair<std::string, int64_t>>
      owners;                         // live bytes by kind, before anything was freed
  std::vector<int64_t> recent_peaks;  // bytes, of up to 20 steps before, oldest first
};

// A reader of reports; the only thing the loop calls that a user may plug in.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void step(const StepReport& report) = 0;
  virtual void evaluation(const EvaluationReport&) {}
  virtual void incident(const Incident&) {}
  // Everything reported so far is on disk when it returns (called before a checkpoint is complete).
  virtual void flush() {}
};

}  // namespace tanren
