// A batch for a dry run (dry_scope.h). Called by model/layer_table and quantize/readers.
#pragma once

#include "tanren/base/batch.h"

namespace tanren {

// A batch with the same ids, and with fields of the same shapes and dtypes but without memory. Call
// it inside a DryScope.
Batch without_memory(const Batch& batch);

}  // namespace tanren
