// Batch: samples collated along dim 0, with their ids and the host-side counts of what they hold.
// Invariant: every field has the same size along dim 0, equal to ids.size().
// GlobalBatch: what one update consumes. On one rank, local == global.
#pragma once

#include "tanren/base/tensor_map.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// How many loss-bearing items of each kind ("samples", "tokens", …): known on the host.
using Counts = std::map<std::string, double>;

struct Batch {
  TensorMap fields;
  at::Tensor ids;  // int64 [n] on the CPU: index of each sample in its dataset

  int64_t size() const { return ids.defined() ? ids.size(0) : 0; }
  const at::Tensor& operator[](std::string_view name) const& { return fields.at(name); }
  // The same for a temporary batch. Returns a handle, which outlives the batch.
  at::Tensor operator[](std::string_view name) const&& { return fields.at(name); }
  // Samples [begin, end) as views.
  Batch slice(int64_t begin, int64_t end) const;
  // The same batch with every field on `device` (ids stay on the CPU).
  Batch to(at::Device device) const;
};

struct GlobalBatch {
  Batch local;              // this rank's share, possibly empty
  Counts counts;            // over all ranks
  int64_t epoch = 0;        // epoch that its first sample belongs to
  int64_t consumed = 0;     // samples of that epoch consumed up to the end of this batch (cursor)
  double wait_seconds = 0;  // how long the loop waited for the loader

  double count(std::string_view name) const;  // DataError naming the known counts
};

}  // namespace tanren
