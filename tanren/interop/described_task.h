// The one way from a description and the weights beside it (interop/model_description.h) to a
// task: check_described, then build_described. Called by load_model and by every verb that is given
// a whole model.
#pragma once

#include "tanren/base/task.h"
#include "tanren/data/dataset.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/model_description.h"
#include "tanren/model/registry.h"

#include <cstdint>
#include <memory>
#include <string>

namespace tanren {

// Before anything is built of an untrusted description: CheckpointError listing the tensors of
// `read` that do not fit it, 8-bit ones included (quantized_tensors.h), ConfigError for sizes that
// no model has; `what` names the file. Returns what the file says of its 8-bit weights. Allocates
// no tensor memory for kinds that make models anew (KindTraits); of others that note alone is
// checked.
QuantizeNote check_described(const ModelDescription& description, const SafetensorsFile& read,
                             const std::string& what, const ModelRegistry& models);

// The task of `options` (resolve_model) and `info` with these weights and buffers, on the CPU, in
// training mode, never initialised at random if its kind makes models anew. Floating tensors
// have the file's dtype, fp32 or fp64; fp64 becomes `widest` as each is taken. 8-bit weights stay
// so: the task answers with them (quantize/quantized_task.h). A module of the library's own kinds
// has at most one of them in fp32 at a time; those of another kind's are freed before the first is
// taken over, with the pages that the allocator kept of them. `note` is what check_described
// returned. CheckpointError as check_described, for any kind, as quantized_parameters, and for a
// parameter with two names whose 8-bit numbers differ.
Task build_described(const ModelOptions& options, const DataInfo& info, const SafetensorsFile& read,
                     const QuantizeNote& note, const std::string& what, const ModelRegistry& models,
                     c10::ScalarType widest);

// Replaces the training data: knows their description but holds no samples. `size` is only
// reported.
std::unique_ptr<Dataset> described_dataset(DataInfo info, int64_t size);

}  // namespace tanren
