// What summary.json says to the next start of a run folder. A summary of a failed start keeps the
// figures of the last session that ended in order. Internal to run/.
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
// Those with which a start from `checkpoint` begins; none: 0. Of a damaged step folder only the
// step in its name is known, and counts as that many attempts.
RunCounts counts_at(const std::optional<std::filesystem::path>& checkpoint);

// Whether the summary tells of saved steps: all that says so of a run of a tanren that kept no file
// `saved`. A run that failed may have made them and saved none.
bool counts_steps(const std::filesystem::path& folder);

// How the folder's run can be continued, as the end of a refusal, if it reached its end and `now`
// asks for no more than that; else empty. A run whose 8-bit model is unwritten goes on to write it.
std::string way_to_go_on(const std::filesystem::path& folder, const RunConfig& before,
                         const RunConfig& now);

// A run that continues is neither finished nor failed: if it is interrupted, the next start resumes
// it. Of a failed start only the figures that it kept stay, with the counts of `resume_from`; none,
// if the run begins again.
void reopen(const std::filesystem::path& folder,
            const std::optional<std::filesystem::path>& resume_from);

// The text of summary.json for a start that failed, with the figures that the folder's summary has
// and this one lacks. `has_trained`: it came as far as its loop, else only its counts, its loss if
// known, and its end are its own.
std::string failed_summary(const std::filesystem::path& folder, const Summary& summary,
                           bool has_trained);

}  // namespace tanren
