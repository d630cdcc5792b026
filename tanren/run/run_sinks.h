// The sinks that write to the run folder. Internal to run/.
#pragma once

#include "tanren/base/report.h"
#include "tanren/run/origin.h"
#include "tanren/run/run_folder.h"
#include "tanren/train/run_state.h"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// The sinks' files are cut back to `state`: later entries were lost and will be written again, as
// will the evaluation after `state` if the loop still has to make it. `changes` are logged before
// the next attempt, unless the log has them.
std::vector<std::unique_ptr<Sink>> make_sinks(
    const RunFolder& folder, const RunState& state, bool repeats_evaluation,
    const MetricsOptions& options, std::span<const ConfigChange> changes,
    std::vector<std::pair<std::string, std::string>> texts,
    const std::vector<std::string>& class_names);

// Call this before a fork begins: removes what an earlier start of the fork wrote and did not save.
// That start may have begun at another step. RunError if the log cannot be removed.
void remove_unsaved(const RunFolder& folder);

}  // namespace tanren
