// What opens a run's training data anew finds their columns and classes anew. They must be what its
// weights were trained with. Checked before a checkpoint is evaluated or predicts.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"

#include <filesystem>
#include <string>

namespace tanren {

// DataError if the columns of the data `train`, what was measured of them, or the names of classes
// are others than those in the origin (origin.h) of `checkpoint`, a step folder, or in the
// description that a run's exported weights carry. Checkpoints without an origin pass, and exported
// weights without a usable description with a line in the log. `verb` begins the error ("eval").
void check_same_table(const RunConfig& config, const Dataset& train,
                      const std::filesystem::path& checkpoint, const std::string& verb);

}  // namespace tanren
