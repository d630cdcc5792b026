// The folder of a quantisation's results: the whole model and the report's three texts. Called by
// quantize_file.h.
#pragma once

#include "tanren/post_training/quantize_file.h"
#include "tanren/post_training/quantize_report.h"

#include <filesystem>
#include <functional>

namespace tanren {

// The folder for the results of the model in `file`. ConfigError for a folder that contains the
// model itself, for existing results that are not to be replaced, and for a folder that cannot be
// written.
std::filesystem::path result_folder(const QuantizeInput& input, const std::filesystem::path& file);

// Puts the results into `out`. `write_model` writes the whole model to the given path; without it,
// no model is written, and an earlier one is removed. All files are first written into a temporary
// folder of this process, so a failure until then leaves the earlier results unchanged. Then the
// earlier report is removed, the model is replaced, and the new report follows: a report is never
// beside the model of another one. Only one process at a time replaces results. RunError if a file
// cannot be replaced; if an earlier file is gone by then, the new files stay in the temporary
// folder, which the error names, until a later call succeeds. ConfigError for a folder that cannot
// be made.
void write_results(const std::filesystem::path& out, const QuantizeReport& report,
                   const std::function<void(const std::filesystem::path&)>& write_model);

}  // namespace tanren
