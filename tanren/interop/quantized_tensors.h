// The 8-bit weights of a whole model among the tensors of its file, under compressed-tensors'
// names: `x.weight` is int8, and beside it lie `x.weight_scale`, fp32 [out, 1] or [out, groups],
// and for a static input `x.input_scale`, fp32 [1], and `x.input_zero_point`, int8 [1]: that of
// InputScale less 128. A parameter `x.kernel`, of an own module, has `x.kernel_scale`,
// `x.kernel_input_scale` and `x.kernel_input_zero_point`. Tensors of files are untrusted.
#pragma once

#include "tanren/base/tensor_map.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/interop/quantize_note.h"
#include "tanren/quantize/quantized_names.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// The shape of the 8-bit values of a parameter of this shape: of a projection, turned.
std::vector<int64_t> quantized_shape(at::IntArrayRef parameter, WeightReader reader);

// A model's tensors for a file: each of `parameters` in 8 bits, with what lies beside it.
// InputError for a name that is not among the tensors, another shape, all that quantized_parameters
// would refuse, a name beside a parameter that another tensor has, and a parameter whose second
// name keeps its numbers: a tensor of the same memory. Of tensors read from a file none is
// another's.
TensorMap with_quantized(const TensorMap& tensors, const QuantizedParameters& parameters);

// The tensors of a file as the model has them: an fp32 tensor without memory in the parameter's
// shape for each 8-bit one, and nothing beside it. Reads no element. CheckpointError naming the
// file `what` for a tensor that is missing or has another dtype or shape.
TensorMap as_parameters(const TensorMap& tensors, const QuantizeNote& note,
                        const std::string& what);

// The 8-bit weights. Values are the tensors themselves, which may lie in a mapped file; all else is
// copied. CheckpointError or InputError naming the file `what` as as_parameters, and for scales
// that are not finite and above 0.
QuantizedParameters quantized_parameters(const TensorMap& tensors, const QuantizeNote& note,
                                         const std::string& what);

// The tensors of a file with all weights in fp32, values × scale, in the parameters' shapes.
// Errors as quantized_parameters, before memory is taken.
TensorMap expanded(const TensorMap& tensors, const QuantizeNote& note, const std::string& what);

// read_state_dict (checkpoint/folder_weights.h) with all weights in fp32; of a step folder the
// plain model's (plain_tensors, export.h). Remarks say how many were expanded or left out. Errors
// also as check_version.
NamedWeights read_expanded(const std::filesystem::path& path);

}  // namespace tanren
