// incidents.jsonl of the run folder: one line for each memory shortage that the run recovered from.
// The first incident creates the file. Called by run and by users' own loops.
#pragma once

#include "tanren/base/report.h"

#include <filesystem>
#include <memory>
#include <string>

namespace tanren {

// One JSON object without line feed. Sizes are in bytes; unknown values are left out.
std::string incident_json(const Incident& incident);
// "out of memory at stages.0 (convolution): microbatch 48 → 24, global batch still 512"
std::string incident_text(const Incident& incident);

// Appends each incident. A failed write is logged once; the run continues.
std::unique_ptr<Sink> make_incident_file_sink(const std::filesystem::path& file);

}  // namespace tanren
