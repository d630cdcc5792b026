// QuantizeNote: the facts about 8-bit weights in the metadata tanren.quantize of a whole model's
// file: how they were made, and which operator reads each. The metadata are untrusted, like those
// of model_description.h. quantized_tensors.h checks the weights that a note names.
#pragma once

#include "tanren/formats/safetensors.h"
#include "tanren/quantize/quantized_parameters.h"

#include <cstdint>
#include <map>
#include <string>

namespace tanren {

constexpr const char* kVersionKey = "tanren.version";  // of the description
constexpr const char* kFloatingVersion = "1";
constexpr const char* kQuantizedVersion = "2";  // with 8-bit weights
constexpr const char* kQuantizeKey = "tanren.quantize";

// ConfigError naming the file for a description of another version, or one whose version
// contradicts the presence of a note on 8-bit weights. Metadata without a version pass.
void check_version(const Metadata& metadata, const std::string& file);

struct QuantizeNote {
  std::string scheme;   // weights, dynamic, static
  std::string range;    // how ranges of inputs were measured: mse, minmax; empty: they were not
  int64_t samples = 0;  // number of samples used for that
  std::map<std::string, std::string> kept;                   // parameters that stay → why
  std::map<std::string, WeightReader, std::less<>> readers;  // 8-bit parameters

  bool empty() const { return readers.empty(); }
};

// The note as text for the metadata. InputError for a note that quantize_note would refuse: without
// a scheme, with samples below 0, or without an 8-bit weight. Reasons may be any bytes.
std::string quantize_text(const QuantizeNote& note);

// Reads the note back; it is empty if the metadata have none. Takes memory for at most 131 072
// names of each kind. ConfigError naming the file `what` if it is malformed or names no 8-bit
// weight.
QuantizeNote quantize_note(const Metadata& metadata, const std::string& what);

// "scheme static (range mse, 256 samples): 74 weights in 8 bits (2 embedding, 72 linear), 3 stay".
std::string quantize_line(const QuantizeNote& note);

}  // namespace tanren
