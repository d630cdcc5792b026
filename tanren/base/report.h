// What a run reports: plain data. Sinks get const references, so they cannot change the run.
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
  double loss_scale = 1;     // used by this update
  Verdict verdict;
  std::optional<Spike> spike;            // if verdict.cause is spike
  std::optional<double> flush_share;     // gradient elements that fp16 would flush to zero
  std::optional<double> overflow_share;  // gradient elements that would overflow in fp16
};

struct StepReport {
  int64_t attempt = 0;  // global batches consumed, this one included
  int64_t step = 0;     // applied updates of the first objective, this one included if applied
  int64_t epoch = 0;
  int64_t samples = 0;                      // in this global batch, over all ranks
  int64_t tokens = 0;                       // in this global batch; 0: the data does not count them
  int64_t microsteps = 0;                   // on this rank
  std::vector<ObjectiveReport> objectives;  // those due at this batch; the first always is
  bool several = false;                     // the run has more than one objective
  std::string culprit;          // non-finite microbatch and parameter, or the count that is 0
  bool stop_requested = false;  // several ranks: some rank got a stop request during this update

  // The values below differ from run to run.
  double seconds = 0;       // the whole step, waiting for data included
  double wait_seconds = 0;  // the part of it spent waiting for data
  // Pipeline stages on the CPU: the share of all stages' time in the window spent waiting for other
  // stages.
  std::optional<double> bubble = std::nullopt;
  int64_t memory_bytes = 0;  // peak resident memory so far (CPU), peak allocated (CUDA)
};

// The results of an evaluation for one class. A share of nothing (0/0) is 0, as in scikit-learn.
struct ClassReport {
  int64_t targets = 0;      // of this class
  int64_t predictions = 0;  // of this class
  double precision = 0;
  double recall = 0;
  double f1 = 0;
  std::optional<double> auroc;  // against all other classes; NaN if either side has no target
};

struct EvaluationReport {
  int64_t step = 0;
  int64_t samples = 0;
  int64_t tokens = 0;     // if the data counts them
  NamedValues values;     // "loss", "accuracy", "top5", …
  bool averaged = false;  // of the averaged weights
  std::string ends_run;   // why the run ends with this evaluation; empty: it continues
  double seconds = 0;
  std::vector<ClassReport> classes;       // empty unless a metric is about classes
  std::vector<int64_t> confusion_matrix;  // if asked for: row = target, column = prediction
  std::optional<double> auroc_error;      // bound on the error of each AUROC here; 0: exact
};

// Pictures that show what a model does at a step. Each is one row of pictures beside each other: a
// sample's input, its target and the model's output.
struct ImageReport {
  struct Picture {
    std::string tag;  // "eval/pictures/0", or under train/
    int64_t width = 0, height = 0;
    std::vector<uint8_t> rgb;  // rows from the top, 3 bytes a pixel
  };
  int64_t step = 0;
  std::vector<Picture> pictures;
};

// A shortage of memory that the run recovered from.
struct Incident {
  int64_t attempt = 0, step = 0;  // when it happened, counted as in StepReport
  std::string operation;          // torch's operator; empty: unknown
  std::string block;              // of the model; empty: outside of any block, or unknown
  bool in_backward = false;
  int64_t bytes = 0;  // requested; 0: unknown
  std::string message;
  int64_t microbatch = 0, next_microbatch = 0;  // samples: the size that did not fit, the next size
  int64_t global_batch = 0;                     // unchanged
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;  // of the batch's fields
  int64_t limit_bytes = 0;                                           // 0: none
  std::vector<std::pair<std::string, int64_t>>
      owners;                         // live bytes by kind, before anything was freed
  std::vector<int64_t> recent_peaks;  // bytes, of up to 20 previous steps, oldest first
};

// Receives reports. The only user-supplied object that the loop calls.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void step(const StepReport& report) = 0;
  virtual void evaluation(const EvaluationReport&) {}
  virtual void incident(const Incident&) {}
  virtual void images(const ImageReport&) {}
  // When it returns, everything reported so far is on disk. Called before a checkpoint is complete.
  virtual void flush() {}
};

}  // namespace tanren
