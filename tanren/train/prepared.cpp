#include "tanren/train/prepared.h"

#include <ATen/ATen.h>

namespace tanren {

Batch prepared(const Batch& batch, const Parts& parts) {
  const bool wide = parts.plan.precision.mode == Mode::fp64;
  const bool channels_last = parts.plan.memory.channels_last;
  if (!wide && !channels_last && parts.device.is_cpu()) return batch;
  Batch moved = batch.to(parts.device);
  if (!wide && !channels_last) return moved;
  Batch result;
  result.ids = moved.ids;
  for (const auto& [name, field] : moved.fields) {
    at::Tensor fit = field;
    if (wide && fit.is_floating_point()) fit = fit.to(at::kDouble);
    if (channels_last && fit.is_floating_point() && fit.dim() == 4) {
      fit = fit.contiguous(at::MemoryFormat::ChannelsLast);
    }
    result.fields.set(name, fit);
  }
  return result;
}

}  // namespace tanren
