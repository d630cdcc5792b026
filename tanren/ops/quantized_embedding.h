// An embedding with an 8-bit table: only the rows that are asked for are expanded. For evaluation
// and prediction: it has no gradient. Called by quantize/quantize_scope. Thread-safe.
#pragma once

#include "tanren/base/quantized_weight.h"
#include "tanren/ops/packed_weight.h"

#include <ATen/core/Tensor.h>

namespace tanren {

// weight [rows, width], ids [...] int32 or int64 on the CPU → [..., width] in `dtype`, fp32 or
// bf16: the rows of expand(weight, dtype) (base/quantized_weight.h), bit by bit. Throws an Error
// for an id outside of the table and for other dtypes.
at::Tensor quantized_embedding(const QuantizedWeight& weight, const at::Tensor& ids,
                               at::ScalarType dtype);

// The same from the packed weight of a linear layer, whose channels are the table's rows: for a
// weight that both read.
at::Tensor quantized_embedding(const PackedWeight& weight, const at::Tensor& ids,
                               at::ScalarType dtype);

}  // namespace tanren
