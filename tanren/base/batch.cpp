#include "tanren/base/batch.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>

namespace tanren {

Batch Batch::slice(int64_t begin, int64_t end) const {
  Batch part;
  for (const auto& [name, field] : fields)
    part.fields.set(name, field.narrow(0, begin, end - begin));
  part.ids = ids.narrow(0, begin, end - begin);
  return part;
}

Batch Batch::to(at::Device device) const {
  Batch moved;
  for (const auto& [name, field] : fields) {
    moved.fields.set(name, field.to(device, /*non_blocking=*/true));
  }
  moved.ids = ids;
  return moved;
}

double GlobalBatch::count(std::string_view name) const {
  const auto found = counts.find(std::string(name));
  if (found != counts.end()) return found->second;
  std::string known;
  for (const auto& [other, value] : counts) known += (known.empty() ? "" : ", ") + other;
  throw DataError("[data] the batch has no count " + std::string(name) + "; it has: " + known +
                  "; let the dataset's collate count it");
}

}  // namespace tanren
