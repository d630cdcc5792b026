#include "tanren/train/prepared.h"

#include "tanren/base/error.h"
#include "tanren/precision/autocast_scope.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {

Batch prepared(const Batch& batch, const Task& task, const Parts& parts) {
  const at::ScalarType dtype = parameter_dtype(parts.plan.precision);
  const bool casts = dtype != at::kFloat;
  const bool channels_last = parts.plan.memory.channels_last;
  if (!casts && !channels_last && parts.device.is_cpu()) return batch;
  Batch moved = batch.to(parts.device);
  if (!casts && !channels_last) return moved;
  const auto& of_loss = task.loss_fields;
  for (const std::string& name : of_loss) {
    if (!casts || dtype == at::kDouble || moved.fields.contains(name)) continue;
    std::string known;
    for (const auto& [field, tensor] : moved.fields) known += (known.empty() ? "" : ", ") + field;
    throw ConfigError("[train] the task's loss_fields name '" + name +
                      "', and a batch has: " + known + "; fix the name");
  }
  Batch result;
  result.ids = moved.ids;
  for (const auto& [name, field] : moved.fields) {
    at::Tensor fit = field;
    const bool is_spared =
        dtype != at::kDouble && std::find(of_loss.begin(), of_loss.end(), name) != of_loss.end();
    if (casts && fit.is_floating_point() && !is_spared) fit = fit.to(dtype);
    if (channels_last && fit.is_floating_point() && fit.dim() == 4) {
      fit = fit.contiguous(at::MemoryFormat::ChannelsLast);
    }
    result.fields.set(name, fit);
  }
  return result;
}

}  // namespace tanren
