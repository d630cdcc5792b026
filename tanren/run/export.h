// The weights that a finished run hands over: one safetensors file in the run folder, under the
// module's names: of the best checkpoint if the run ranks them, else of its end; averaged if its
// evaluations were.
#pragma once

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

// Writes folder/model.safetensors, whole or not at all; step and kind stand in its metadata. A best
// checkpoint that is no longer there gives way to the next best, and at last to `run` itself.
Exported export_weights(const RunState& run, const Parts& parts,
                        const std::filesystem::path& folder);

// folder/model.safetensors, if it is there.
std::optional<std::filesystem::path> exported_weights(const std::filesystem::path& folder);

// Loads such a file into a fresh `run`: weights, buffers and the step. True if they are averaged.
bool load_exported(RunState& run, const std::filesystem::path& file);

}  // namespace tanren
