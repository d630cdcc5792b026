// A batch for a dry run (dry_scope.h). Called by model/layer_table and quantize/readers.
#pragma once

#include "tanren/base/batch.h"

namespace tanren {

// The batch with its ids, and fields without memory of the same shapes and dtypes. Inside a
// DryScope.
Batch without_memory(const Batch& batch);

}  // namespace tanren
