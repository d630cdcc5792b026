// incidents.jsonl of the run folder: one line for each shortage of memory that the run recovered from.
// The file begins with the first; a run without incidents has none. Called by run and by own loops.
#pragma once

#include "tanren/base/report.h"

#include <filesystem>
#include <memory>
#include <string>

namespace tanren {

// One JSON object without line feed. Bytes are bytes; what is unknown is left out.
std::string incident_json(const Incident& incident);
// "out of memory at stages.0 (convolution): microbatch 48 → 24, global batch still 512"
std::string incident_text(const Incident& incident);

// Appends each incident. What cannot be written is told to the log once; the run goes on.
std::unique_ptr<Sink> make_incident_file_sink(const std::filesystem::path& file);

}  // namespace tanren
