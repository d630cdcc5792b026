// A sink that writes pictures as PNG files: images/step-000200.png for those of step 200, the rows
// of several samples below each other. A thread of its own encodes and writes; the step's thread
// only copies bytes. A view, not a record: if writing fails, one warning is logged and the run
// continues. Called by run.
#pragma once

#include "tanren/base/report.h"

#include <filesystem>
#include <memory>
#include <string>

namespace tanren {

// The name of the file with the pictures of that step.
std::string picture_file_name(int64_t step);

// Creates `folder` with the first pictures. Files are whole or absent. `step`: applied steps of the
// run so far; pictures of later steps, from an earlier session, are removed.
std::unique_ptr<Sink> make_picture_files_sink(const std::filesystem::path& folder, int64_t step);

}  // namespace tanren
