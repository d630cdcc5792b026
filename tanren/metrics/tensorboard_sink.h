// Writes the run for TensorBoard: event files with a point per applied step and evaluation, and
// texts, written by another thread (queued_sink.h). A view, not a record: the run continues even if
// writing fails. Tags are the log's keys under train/ (train/<objective>/ if there are several),
// evaluate/, speed/ and memory/. Called by run and by users' own loops, through Sink.
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
  bool repeats_evaluation = false;                         // of `step`: its points are cut off too
};

// Begins a new file in `folder`, which is created if absent. Never throws: a failure, now or later,
// is logged once, and the sink then does nothing or tries again.
std::unique_ptr<Sink> make_tensorboard_sink(const std::filesystem::path& folder,
                                            const TensorboardOptions& options);

}  // namespace tanren
