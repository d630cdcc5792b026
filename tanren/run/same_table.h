// Opening a run's training data again determines their columns and classes again. This checks that
// they are the ones that the weights were trained with, before a checkpoint is evaluated or
// predicts.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"

#include <filesystem>
#include <string>

namespace tanren {

// DataError if the columns of `train`, what was measured of them, or the names of classes differ
// from those of `checkpoint`: in the origin (origin.h) of a step folder, or in the description that
// a run's exported weights carry. Checkpoints without an origin pass. Exported weights without a
// usable description pass with a log line. `verb` begins the error ("eval").
void check_same_table(const RunConfig& config, const Dataset& train,
                      const std::filesystem::path& checkpoint, const std::string& verb);

}  // namespace tanren
