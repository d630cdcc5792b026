#include "tanren/forecast/dry_step.h"

#include "tanren/base/memory_tag.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/precision/half_convolution.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <map>

namespace tanren {

ThreadsScope::ThreadsScope(int64_t threads) : before_(at::get_num_threads()) {
  at::set_num_threads(static_cast<int>(threads));
}

ThreadsScope::~ThreadsScope() { at::set_num_threads(before_); }

c10::DeviceType device_type(const Plan& plan) { return c10::Device(plan.device.device).type(); }

void use_kernels_of(const Plan& plan) {
  if (plan.device.device == "cpu") enable_half_convolution();
}

int64_t sequence_length(const Batch& sample) {
  for (const auto& [name, field] : sample.fields) {
    if (field.dim() >= 2 && at::isIntegralType(field.scalar_type(), /*includeBool=*/false)) {
      return field.size(1);
    }
  }
  return 0;
}

GlobalBatch batch_like(const Collated& one, int64_t size, int64_t length) {
  GlobalBatch batch;
  batch.consumed = size;
  const int64_t own_length = sequence_length(one.batch);
  const MemoryScope memory(MemoryKind::batches);
  for (const auto& [name, field] : one.batch.fields) {
    std::vector<int64_t> sizes = field.sizes().vec();
    sizes.at(0) = size;
    if (length > 0 && sizes.size() >= 2 && sizes[1] == own_length) sizes[1] = length;
    batch.local.fields.set(name, at::empty(sizes, field.options()));
  }
  batch.local.ids = at::arange(size, at::kLong);
  for (const auto& [name, count] : one.counts) {
    batch.counts[name] = std::max(count, 1.0) * static_cast<double>(size);
  }
  return batch;
}

int64_t sample_bytes(const Batch& sample, const Plan& plan) {
  int64_t bytes = 0;
  for (const auto& [name, field] : sample.fields) {
    const auto own = static_cast<int64_t>(field.nbytes());
    bytes += own;
    if (!field.is_floating_point()) continue;
    const auto size = static_cast<int64_t>(c10::elementSize(parameter_dtype(plan.precision)));
    const bool casts = c10::elementSize(field.scalar_type()) != static_cast<size_t>(size);
    if (casts) bytes += field.numel() * size;
    if (plan.memory.channels_last && field.dim() == 4) bytes += casts ? field.numel() * size : own;
  }
  return bytes;
}

MemoryPrediction traced_peak(const MemoryTrace& trace, size_t before) {
  MemoryPrediction result;
  int64_t sum = 0;
  size_t peak = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    sum += trace[i].bytes;
    if (i + 1 == before) result.before_bytes = sum;
    if (i >= before && sum > result.peak_bytes) {
      result.peak_bytes = sum;
      peak = i;
    }
  }
  std::map<uint32_t, MemoryEvent> live;
  for (size_t i = 0; i <= peak && i < trace.size(); ++i) {
    if (trace[i].bytes > 0) {
      live[trace[i].tensor] = trace[i];
    } else {
      live.erase(trace[i].tensor);
    }
  }
  std::map<uint16_t, int64_t> blocks;
  for (const auto& [tensor, event] : live) {
    result.at_peak.at(static_cast<size_t>(event.kind)) += event.bytes;
    // (Casts of a block's weights stay for the window, whether the block is recomputed or not.)
    if (event.block != 0 && event.kind != MemoryKind::casts) blocks[event.block] += event.bytes;
  }
  for (const auto& [id, bytes] : blocks) result.blocks.push_back({block_name(id), bytes, 0});
  std::sort(result.blocks.begin(), result.blocks.end(),
            [](const auto& a, const auto& b) { return a.held_bytes > b.held_bytes; });
  return result;
}

void add_workspaces(MemoryPrediction& prediction, const Plan& plan, bool trains) {
  const int64_t bytes = (trains ? 2 : 1) * plan.device.workspace_bytes;
  prediction.peak_bytes += bytes;
  prediction.at_peak.at(static_cast<size_t>(MemoryKind::workspaces)) += bytes;
}

void add_batches(MemoryPrediction& prediction, int64_t bytes) {
  prediction.peak_bytes += bytes;
  prediction.before_bytes += bytes;
  prediction.at_peak.at(static_cast<size_t>(MemoryKind::batches)) += bytes;
}

}  // namespace tanren
