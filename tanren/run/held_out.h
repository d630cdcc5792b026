// Checks that the rows that data.split keeps from training are the same as in the run: the same
// data, and the same share. Called before a checkpoint is evaluated on these rows. Internal to
// run/.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/train/build.h"

#include <filesystem>

namespace tanren {

// ConfigError if `checkpoint` (a step folder, or a run's exported weights) was trained with another
// data.split than `config` has. DataError if the facts of its data (origin.h) differ from those of
// `datasets`. For exported weights, the facts are those of the run's newest checkpoint; if there is
// none, this is logged and nothing is compared.
void check_held_out(const RunConfig& config, const Datasets& datasets,
                    const std::filesystem::path& checkpoint);

}  // namespace tanren
