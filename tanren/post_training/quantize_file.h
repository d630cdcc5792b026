// quantize_file: what `tanren quantize` does, without printing: measures a trained model in fp32,
// in bf16 and with 8-bit weights, and writes the cheapest that its tolerance allows. Not
// thread-safe: it sets the process's threads and allocator, as runs do.
#pragma once

#include "tanren/post_training/quantize_report.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct QuantizeInput {
  std::filesystem::path model;  // run folder, or a whole model's file
  std::filesystem::path data;   // to evaluate on; empty: a run folder's own
  std::filesystem::path out;    // folder of the results; empty: quantized/ beside the model's file
  bool replaces = false;        // existing results
  std::vector<std::string> sets;
  // Called before the first file is written: until then the process may end at any moment and
  // leaves nothing.
  std::function<void()> writes = {};
};

// Writes quantize.txt, .json and .html, and model.tanren.safetensors (interop/whole_model.h). No
// model is written if no scheme is within the tolerance, or if a named scheme makes no 8-bit
// weight. A named quantize.scheme is written even beyond the tolerance; the report says so. Each
// file is whole or absent. Errors as open_subject (quantize_subject.h), PostTraining
// (layer_choice.h) and evaluate; ConfigError for existing results.
QuantizeReport quantize_file(const QuantizeInput& input, const Registry& registry);

// The index of the cheapest 8-bit scheme. It was measured, is within the tolerance and has fewer
// tensor bytes than fp32. Schemes whose bytes are within 1 % of the fewest count as equal; the
// fastest of them at batch 8 is chosen.
std::optional<size_t> cheapest_scheme(const std::vector<SchemeResult>& schemes);

}  // namespace tanren
