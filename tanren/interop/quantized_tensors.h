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

// The shape of the 8-bit values of a parameter of this shape; transposed for a projection.
std::vector<int64_t> quantized_shape(at::IntArrayRef parameter, WeightReader reader);

// A model's tensors as a file has them: each of `parameters` in 8 bits, with its scales and zero
// points. InputError for a parameter that is not among the tensors or has another shape, for all
// that quantized_parameters would refuse, and if another tensor has the name of a scale or zero
// point. InputError also if a tensor that stays floating shares its memory with a parameter, i.e.
// is its second name. Tensors read from a file never share memory.
TensorMap with_quantized(const TensorMap& tensors, const QuantizedParameters& parameters);

// The tensors of a file as the model has them. Each 8-bit tensor becomes an fp32 tensor without
// memory, in the parameter's shape. Its scales and zero points are left out. Reads no element.
// CheckpointError naming the file `what` for a tensor that is missing or has another dtype or
// shape.
TensorMap as_parameters(const TensorMap& tensors, const QuantizeNote& note,
                        const std::string& what);

// Returns the 8-bit weights. Their values are the file's tensors themselves, which may be mapped;
// scales are copied. CheckpointError or InputError naming the file `what`, as as_parameters, and
// for scales that are not finite or not above 0.
QuantizedParameters quantized_parameters(const TensorMap& tensors, const QuantizeNote& note,
                                         const std::string& what);

// The tensors of a file with all weights in fp32, values × scale, in the parameters' shapes.
// Errors as quantized_parameters, before memory is taken.
TensorMap expanded(const TensorMap& tensors, const QuantizeNote& note, const std::string& what);

// Like read_state_dict (checkpoint/folder_weights.h), but expands 8-bit weights to fp32. For a step
// folder, returns the plain model's weights (plain_tensors, export.h). Remarks say how many tensors
// were expanded or left out. Errors also as check_version.
NamedWeights read_expanded(const std::filesystem::path& path);

}  // namespace tanren
