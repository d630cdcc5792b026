// Converts a bert with 8-bit weights to the form that transformers opens with the package
// compressed-tensors. Its linear layers stay int8, under the names of quantized_tensors.h, and
// config.json gets a quantization_config of the format int-quantized. Called by python_folder.
#pragma once

#include "tanren/base/tensor_map.h"
#include "tanren/interop/quantize_note.h"

#include <set>
#include <string>

namespace tanren {

struct CompressedBert {
  TensorMap tensors;             // linear layers in int8; other 8-bit weights are expanded to fp32
  std::set<std::string> scales;  // names of the tensors that are never cast to another dtype
  std::string config;            // quantization_config as JSON; empty if no linear layer is 8-bit
  std::string remark;            // which weights are in which form
};

// `tensors` are those of a whole model's file, `what`. A layer without an input scale quantises its
// input per token, unless the scheme is "weights". Errors as quantized_parameters.
CompressedBert compressed_bert(const TensorMap& tensors, const QuantizeNote& note,
                               const std::string& what);

}  // namespace tanren
