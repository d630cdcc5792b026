#include "tanren/forecast/enough_samples.h"

#include "tanren/base/text.h"

#include <algorithm>
#include <vector>

namespace tanren {

namespace {

// The numbers of samples that ranks get of a full batch and of an epoch's short last batch.
std::vector<int64_t> shares_of(const BatchPlan& batch, int64_t samples) {
  std::vector<int64_t> shares;
  const auto add = [&](int64_t size) {
    const int64_t ranks = batch.world_size;
    for (const int64_t share : {size / ranks, (size + ranks - 1) / ranks}) {
      if (share > 0) shares.push_back(share);
    }
  };
  add(batch.global_batch);
  if (batch.keep_last) add(samples % batch.global_batch);
  return shares;
}

// Samples of a share's last microbatch.
int64_t last_of(int64_t share, int64_t microbatch) { return (share - 1) % microbatch + 1; }

}  // namespace

int64_t with_enough(const BatchPlan& batch, int64_t samples, const SampleCounts& counts) {
  const int64_t least = counts.least, multiple = counts.multiple;
  const std::vector<int64_t> shares = shares_of(batch, samples);
  const auto is_enough = [&](int64_t microbatch) {
    return std::all_of(shares.begin(), shares.end(), [&](int64_t share) {
      const int64_t fewest_parts = (share + batch.microbatch - 1) / batch.microbatch;
      const bool has_split = share % multiple == 0 && fewest_parts * least <= share;
      return !has_split || last_of(share, microbatch) >= least;
    });
  };
  // The same number of microsteps, but of similar size: 4 = 2 + 2 rather than 3 + 1.
  const int64_t microsteps = (batch.per_rank + batch.microbatch - 1) / batch.microbatch;
  int64_t even = std::max((batch.per_rank + microsteps - 1) / microsteps, least);
  even += (multiple - even % multiple) % multiple;
  for (int64_t size = even; size <= batch.microbatch; size += multiple) {
    if (is_enough(size)) return size;
  }
  for (int64_t size = even - multiple; size >= least; size -= multiple) {
    if (is_enough(size)) return size;
  }
  return even;
}

std::string too_few(const BatchPlan& batch, int64_t samples, const SampleCounts& counts) {
  for (const int64_t share : shares_of(batch, samples)) {
    const int64_t last = last_of(share, batch.microbatch);
    if (counts.has(last)) continue;
    return fmt::format(
        "the model takes {} samples at once, and {} in microbatches of {} end with {}; change "
        "batch.global_batch or batch.microbatch, or leave an epoch's short last batch out "
        "(data.last = \"drop\")",
        to_text(counts), share, batch.microbatch, last);
  }
  return "";
}

}  // namespace tanren
