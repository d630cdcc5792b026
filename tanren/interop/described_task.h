// The one way from a description and the weights beside it (interop/model_description.h) to a task:
// check_described, then build_described. Called by load_model and by every verb that is given a
// whole model.
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

// Checks an untrusted description before anything is built from it. CheckpointError listing the
// tensors of `read` that do not fit it, including 8-bit ones (quantized_tensors.h). ConfigError for
// sizes that no model has. `what` names the file. Returns the file's note on its 8-bit weights.
// Allocates no tensor memory. For kinds without KindTraits::makes_anew, only the note is checked.
QuantizeNote check_described(const ModelDescription& description, const SafetensorsFile& read,
                             const std::string& what, const ModelRegistry& models);

// Builds the task of `options` (resolve_model) and `info` with these weights and buffers, on the
// CPU, in training mode. Kinds with KindTraits::makes_anew draw no random weights. Floating tensors
// have the file's dtype, fp32 or fp64; each fp64 tensor becomes `widest` when it is copied. 8-bit
// weights stay 8-bit, and the task computes with them (quantize/quantized_task.h). A module of the
// library's own kinds has at most one of them in fp32 at a time. Other kinds have all in fp32;
// these are freed before the first is copied, and the pages that the allocator kept are freed at
// the end. `note` is the result of check_described. CheckpointError as check_described (here for
// any kind), as quantized_parameters, and for a parameter whose 8-bit numbers differ between its
// two names.
Task build_described(const ModelOptions& options, const DataInfo& info, const SafetensorsFile& read,
                     const QuantizeNote& note, const std::string& what, const ModelRegistry& models,
                     c10::ScalarType widest);

// Replaces the training data: knows their description but holds no samples. `size` is only
// reported.
std::unique_ptr<Dataset> described_dataset(DataInfo info, int64_t size);

}  // namespace tanren
