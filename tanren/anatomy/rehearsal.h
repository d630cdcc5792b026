// Rehearsal: runs a config in memory only, one update at a time, for measurements: no run folder,
// no sinks, nothing saved. The updates are those of the real run, from its beginning or from a
// checkpoint. Before each step, the process's settings (threads, allocator) are set to the plan's
// again, so that two rehearsals can take turns. Not thread-safe. Used by anatomy/anatomy,
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
  // `stage` is called once the weights exist, and again once gradients and optimizer exist; may be
  // empty. `checkpoint`: the step folder, of a run of this config, that it begins with as a resumed
  // run would; empty: none. Errors as `tanren run` has them before its first step.
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

  // Makes one update; `recorder` records it if not null. Of the report, `wait_seconds` is the time
  // of the loader, and `seconds` that of all. A verdict that would halt the run is the caller's to
  // heed.
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
