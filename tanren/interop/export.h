// The weights that a finished run hands over: one safetensors file in the run folder, under the
// module's names: of the best checkpoint if the run ranks them, else of its end; averaged if its
// evaluations were. With the model's description in it (whole_model.h) it has two names.
#pragma once

#include "tanren/formats/safetensors.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tanren {

struct Exported {
  std::filesystem::path file;
  int64_t step = 0;
  bool averaged = false;
};

constexpr const char* kWholeFile = "model.tanren.safetensors";

// Writes folder/model.tanren.safetensors and, as a second name of the same bytes, model.safetensors,
// each whole or not at all; step, kind and `description` stand in the metadata. A best checkpoint that
// is no longer there gives way to the next best, and at last to `run` itself.
Exported export_weights(const RunState& run, const Parts& parts,
                        const std::filesystem::path& folder, const Metadata& description);

// folder/model.safetensors, if it is there.
std::optional<std::filesystem::path> exported_weights(const std::filesystem::path& folder);

// Loads such a file into a fresh `run`: weights, buffers and the step. True if they are averaged.
bool load_exported(RunState& run, const std::filesystem::path& file);
// The same with the file read; `what` stands for it in errors.
bool load_exported(RunState& run, const SafetensorsFile& read, const std::string& what);

}  // namespace tanren
