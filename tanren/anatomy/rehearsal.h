// Rehearsal: runs a config in memory only, one update at a time, for measurements. It has no run
// folder and no sinks, and saves nothing. The updates are those of the real run, from its beginning
// or from a checkpoint. Before each step it sets the process's settings (threads, allocator) to the
// plan's again, so that two rehearsals can take turns. Not thread-safe. Used by anatomy/anatomy,
// anatomy/advice and the learning-rate finder.
#pragma once

#include "tanren/anatomy/operator_recorder.h"
#include "tanren/base/report.h"
#include "tanren/data/loader.h"
#include "tanren/run/prepare.h"
#include "tanren/run/short_waits.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace tanren {

class Rehearsal {
 public:
  // `stage` is called when the weights exist, and again when gradients and optimizer exist. It may
  // be empty. `checkpoint` is the step folder of a run of this config, from which the rehearsal
  // resumes; empty: it begins at the start. Throws the errors that `tanren run` throws before its
  // first step.
  Rehearsal(const RunConfig& config, const Registry& registry, Datasets datasets,
            const std::function<void(const char*, at::Device)>& stage = {},
            const std::filesystem::path& checkpoint = {});

  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // The rate of the updates that follow, in place of schedule, warm-up and average.learning_rate.
  // It is the first objective's; the others keep their proportion to it, as groups and layers do.
  void use_learning_rate(double rate);

  // Restarts the stream of batches, on `workers` loader threads; below 0: as planned.
  void use_loader(int64_t workers);

  // Makes one update; `recorder` records it if not null. In the report, `wait_seconds` is the time
  // of the loader, and `seconds` the total time. The caller must check whether a verdict would halt
  // the run.
  StepReport step(OperatorRecorder* recorder = nullptr);

  // Waits for the device; empty on the CPU.
  std::function<void()> finish() const;

  const Plan& plan() const { return parts_.plan; }
  const Parts& parts() const { return parts_; }
  const RunState& state() const { return state_; }
  const RunConfig& config() const { return config_; }     // as prepared
  Task make_task() const { return make_task_(config_); }  // another one, newly made
  // For a prediction of its step.
  ProbeOptions probes() const {
    return {.runs_dry = state_.task.facts.runs_dry, .counts = counts_};
  }
  const Dataset& dataset() const { return *datasets_.train; }
  int64_t tokens() const { return tokens_; }  // of the last step; 0: no sequences

 private:
  RunConfig config_;
  Datasets datasets_;
  std::function<Task(const RunConfig&)> make_task_;
  SampleCounts counts_;
  Parts parts_;
  std::optional<ShortWaits> waits_;
  RunState state_;
  std::optional<Loader> loader_;
  OperatorRecorder* recorder_ = nullptr;
  int64_t tokens_ = 0;
};

}  // namespace tanren
