// What predict_file checks of names before anything else: that what it writes is nothing that it,
// or the model, is made from. Called by predict_file.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/predict/predict_file.h"

#include <filesystem>

namespace tanren {

// InputError if the source is not there, or is a pipe (line_reader.h) and there are `ranks`; or if
// `out`, or a file beside it that the rows lie in meanwhile, is the source, the model, a weights
// file of its folder or the data of its run, or if `out` is there and no file. Also with
// `input.replaces`.
void check_paths(const PredictInput& input, const std::filesystem::path& out, int64_t ranks);

}  // namespace tanren
