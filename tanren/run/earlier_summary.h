// Reads and changes an earlier start's summary.json for the next start of a run folder. The summary
// of a failed start keeps the figures of the last session that ended in order. Internal to run/.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/metrics/summary.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tanren {

struct RunCounts {
  int64_t steps = 0;
  int64_t attempts = 0;
};
// The counts with which a start from `checkpoint` begins; none: 0. For a damaged step folder, only
// the step in its name is known, and the attempts count as the same number.
RunCounts counts_at(const std::optional<std::filesystem::path>& checkpoint);

// Whether the summary reports saved steps. Runs of older versions have no other record of it,
// because these wrote no file `saved`. False for a run that failed, because it may have made steps
// and saved none.
bool counts_steps(const std::filesystem::path& folder);

// The end of a refusal: how the folder's run can be continued if it reached its end and `now` asks
// for no more than that. Otherwise empty. A run whose 8-bit model is unwritten resumes to write it.
std::string way_to_go_on(const std::filesystem::path& folder, const RunConfig& before,
                         const RunConfig& now);

// Marks a run that continues as neither finished nor failed, so that the next start resumes it if
// it is interrupted. After a failed start, the summary keeps its figures, but gets the counts of
// `resume_from` and loses the losses of undone updates. If the run begins again, the summary is
// removed.
void reopen(const std::filesystem::path& folder,
            const std::optional<std::filesystem::path>& resume_from);

// The text of summary.json for a start that failed, with the figures that the folder's summary has
// and this one lacks. `has_trained`: the start reached its loop. Otherwise its own figures are only
// its counts, its loss if known, and its end.
std::string failed_summary(const std::filesystem::path& folder, const Summary& summary,
                           bool has_trained);

}  // namespace tanren
