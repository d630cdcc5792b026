#include "cli/sweep/trial_run.h"

#include "tanren/base/text.h"
#include "tanren/run/failure.h"
#include "tanren/sweep/corners.h"
#include "cli/train.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

// Makes the other trial's checkpoint the only source of a fork's initial state.
void set_source(RunConfig& config, const fs::path& checkpoint) {
  config.model.init_from.clear();
  config.model.init_skip.clear();
  config.model.init_rename.clear();
  config.optimizer.init_from.clear();
  for (auto& [name, own] : config.objectives) own.optimizer.init_from.clear();
  config.run.fork_from = fs::absolute(checkpoint).lexically_normal().string();
  config.asked.insert("run.fork_from");
}

fs::path folder_of(const SweepPlace& place, const TrialStart& start) {
  return start.confirms ? place.confirming(*start.confirms) : place.trial(start.id);
}

int code_of(const Failure& failure, bool has_begun) {
  if (failure.cause == "non_finite") return kDivergedCode;
  if (failure.cause == "memory") return has_begun ? kOutOfMemoryCode : kRefusedCode;
  return failure.cause == "disk" ? kNoDiskCode : 1;
}

}  // namespace

RunConfig run_config_of(const SweepPlace& place, const TrialStart& start, const KnownKinds& known) {
  const SweepOptions& sweep = place.config.sweep;
  RunConfig config = trial_config(place.source, start.values, known);
  config.run.name = place.config.run.name + "-" + folder_of(place, start).filename().string();
  if (start.confirms) {
    config.run.seed = start.confirms->seed;
    config.asked.insert("run.seed");
  }
  if (!start.share.device.empty()) config.run.device = start.share.device;
  if (config.run.threads == 0) config.run.threads = start.share.threads;
  if (!start.share.memory_limit.empty()) {
    config.memory.limit = start.share.memory_limit;
    config.asked.insert("memory.limit");
  }
  if (start.stop_after) config.run.stop_after = start.stop_after;
  if (start.fork_of) {
    const fs::path steps = place.trial(*start.fork_of) / "checkpoints";
    set_source(config, steps / ("step-" + to_text(start.fork_step)));
  }
  if (sweep.scheduler == "pbt") {
    // A trial may continue to the next exchange, and be stopped before it, before another trial
    // forks it at the last exchange. Its checkpoints since then must be kept.
    const int64_t interval = sweep.interval > 0 ? sweep.interval : config.evaluate.every;
    const int64_t every = config.checkpoint.every;
    const int64_t between = (every > 0 ? interval / every : 0) + 3;
    config.checkpoint.keep = std::max(config.checkpoint.keep, between);
  }
  return config;
}

int train_trial(const SweepPlace& place, const TrialStart& start, const std::string& program,
                const Registry& registry) noexcept {
  Arguments arguments;
  arguments.program = program;
  bool has_begun = false;
  int code = 0;
  std::string reason;
  try {
    const auto named = [&] {
      return Named{.config = run_config_of(place, start, registry.known()),
                   .folder = folder_of(place, start),
                   .began = {}};
    };
    code = train(arguments, registry, named, [&] { has_begun = true; });
  } catch (...) {
    const Failure failure = failure_of_current();
    code = code_of(failure, has_begun);
    reason = failure.reason + "\n";
  }
  std::cout.flush();
  std::fflush(stdout);  // the reason is the last line
  std::cerr << reason << std::flush;
  return code;
}

}  // namespace tanren::cli
