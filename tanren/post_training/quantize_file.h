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
  std::filesystem::path data;   // what judges; a run folder has its own without it
  std::filesystem::path out;    // folder of the results; empty: quantized/ beside the model's file
  bool replaces = false;        // results that are there
  std::vector<std::string> sets;
  // Called before the first file is written: until then the process may end at any moment and
  // leaves nothing.
  std::function<void()> writes = {};
};

// Writes model.tanren.safetensors (interop/whole_model.h), unless no scheme is within the tolerance
// or a named one makes nothing, and quantize.txt, .json and .html; each is whole or absent. A named
// quantize.scheme is written also beyond the tolerance, which the report says. Errors as
// open_subject (quantize_subject.h), PostTraining (layer_choice.h) and evaluate; ConfigError for
// results that are there.
QuantizeReport quantize_file(const QuantizeInput& input, const Registry& registry);

// Of the 8-bit schemes that were measured and are within the tolerance, the place of the one with
// the fewest tensor bytes, in steps of a hundredth; among equals the fastest at batch 8.
std::optional<size_t> cheapest_scheme(const std::vector<SchemeResult>& schemes);

}  // namespace tanren
