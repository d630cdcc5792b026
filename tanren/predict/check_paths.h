// The checks of paths that predict_file makes first: it must not overwrite the data or the model
// that it reads, or the files that these are made from. Called by predict_file.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/predict/predict_file.h"

#include <filesystem>

namespace tanren {

// InputError if the source does not exist, or is a pipe (line_reader.h) while `ranks` is above 1.
// InputError if `out` exists and is no plain file. InputError if `out`, or a file beside it that
// holds the rows meanwhile, is the source, the model, a weights file of its folder or the data of
// its run. All of this holds even with `input.replaces`.
void check_paths(const PredictInput& input, const std::filesystem::path& out, int64_t ranks);

}  // namespace tanren
