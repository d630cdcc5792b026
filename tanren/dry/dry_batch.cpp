#include "tanren/dry/dry_batch.h"

#include <ATen/ops/empty.h>

namespace tanren {

Batch without_memory(const Batch& batch) {
  Batch copy;
  copy.ids = batch.ids;
  for (const auto& [name, field] : batch.fields) {
    const auto options = at::TensorOptions(field.scalar_type()).device(at::kMeta);
    copy.fields.set(name, at::empty(field.sizes(), options));
  }
  return copy;
}

}  // namespace tanren
