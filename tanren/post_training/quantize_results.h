// The folder of a quantisation's results: the whole model and the report's three texts. Called by
// quantize_file.h.
#pragma once

#include "tanren/post_training/quantize_file.h"
#include "tanren/post_training/quantize_report.h"

#include <filesystem>
#include <functional>

namespace tanren {

// Where the results of the model in `file` go. ConfigError for a folder that has the model itself,
// results that are there and not to be replaced, and a place that cannot be written.
std::filesystem::path result_folder(const QuantizeInput& input, const std::filesystem::path& file);

// Puts the results into `out`. `write_model` writes the whole model to the path that it is given;
// empty: none is written, and one that is there goes. All are written aside first, into a folder of
// this process's own: what fails until then leaves the earlier results as they were. Then the
// earlier report goes, the model takes its place, and the report follows, so that no report ever
// stands beside another one's model; one process after the other does so. RunError if a file cannot
// be replaced; if an earlier one is gone by then, what was made stays aside, where the error says,
// until a later call succeeds. ConfigError for a folder that cannot be made.
void write_results(const std::filesystem::path& out, const QuantizeReport& report,
                   const std::function<void(const std::filesystem::path&)>& write_model);

}  // namespace tanren
