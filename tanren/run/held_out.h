// The rows that data.split keeps from training are those of the data and the share that a run had.
// Checked before its checkpoint is evaluated on them. Internal to run/.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/train/build.h"

#include <filesystem>

namespace tanren {

// ConfigError if `checkpoint` (a step folder, or a run's exported weights) was trained with another
// data.split than `config` has; DataError if the facts of its data (origin.h) are others than those
// of `datasets`. Of exported weights the facts are those of the run's newest checkpoint; a line of
// the log says so if there is none.
void check_held_out(const RunConfig& config, const Datasets& datasets,
                    const std::filesystem::path& checkpoint);

}  // namespace tanren
