// A run that keeps no description of its model yet measures its table anew. What it finds must be
// what its checkpoint was trained with. Checked before that checkpoint is evaluated or predicts.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"

#include <filesystem>
#include <string>

namespace tanren {

// DataError if the columns of the table `train`, what was measured of them, or the names of classes
// are others than those in the origin (origin.h) of `checkpoint`: a step folder, or a run's
// exported weights, which have the origin of its newest checkpoint. Data of other kinds, and
// checkpoints without an origin, pass. `verb` begins the error ("eval").
void check_same_table(const RunConfig& config, const Dataset& train,
                      const std::filesystem::path& checkpoint, const std::string& verb);

}  // namespace tanren
