#include "tanren/train/share_buffers.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>

namespace tanren {

void share_buffers(const Phase& phase, const std::vector<Objective*>& applied,
                   const std::vector<double>& samples, const DataParallel& parallel) {
  const auto source = std::find_if(samples.begin(), samples.end(), [](double n) { return n > 0; });
  if (parallel.alone() || source == samples.end()) return;
  const bool averages = parallel.plan().buffers == RankBuffers::mean;
  std::set<const void*> seen;  // a buffer may belong to two objectives
  std::vector<at::Tensor> statistics, others;
  for (const auto* objective : applied) {
    for (const auto& buffer : objective->buffers) {
      if (!seen.insert(buffer.tensor.unsafeGetTensorImpl()).second) continue;
      (averages && buffer.is_measured() ? statistics : others).push_back(buffer.tensor);
    }
  }
  for (const auto& objective : phase.objectives) {
    for (const auto& buffer : objective.buffers) {
      const bool is_new = seen.insert(buffer.tensor.unsafeGetTensorImpl()).second;
      if (is_new) others.push_back(buffer.tensor);
    }
  }
  parallel.take_mean(statistics, samples);
  parallel.take_from(others, source - samples.begin());
}

}  // namespace tanren
