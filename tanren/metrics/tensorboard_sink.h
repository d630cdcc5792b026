// The run for TensorBoard: event files with a point per applied step and evaluation, and texts, written
// off the step's thread (queued_sink.h). A view and no record: whatever the disk does, the run goes
// on. Tags are the log's keys under train/ (train/<objective>/ where there are several), evaluate/,
// speed/ and memory/. Called by run and by own loops, through Sink.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct TensorboardOptions {
  int64_t every = 1;  // applied steps between points; speeds are means over the steps between them
  int64_t step =
      0;  // applied steps of the run so far: later points of earlier sessions are cut off
  std::vector<std::pair<std::string, std::string>> texts;  // tag, text as it is (config, plan)
  bool repeats_evaluation = false;  // of that step: its points are cut off, too
};

// Begins a file of its own in `folder`, made if absent. Never throws: what goes wrong, now or later,
// is told to the log once, and the sink then does nothing or tries again.
std::unique_ptr<Sink> make_tensorboard_sink(const std::filesystem::path& folder,
                                            const TensorboardOptions& options);

}  // namespace tanren
