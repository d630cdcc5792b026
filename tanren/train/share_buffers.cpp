#include "tanren/train/share_buffers.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>

namespace tanren {

void share_buffers(const RunState& run, const std::vector<Objective*>& undone,
                   const std::vector<double>& samples, const Ranks& ranks) {
  const auto source = std::find_if(samples.begin(), samples.end(), [](double n) { return n > 0; });
  if (ranks.data().alone() || source == samples.end()) return;
  const bool averages = ranks.plan().buffers == RankBuffers::mean;
  std::set<const void*> seen;  // a buffer may belong to two objectives
  std::vector<at::Tensor> statistics, others;
  const auto add = [&](const Objective& objective, bool is_undone) {
    for (const auto& buffer : objective.buffers) {
      if (!seen.insert(buffer.tensor.unsafeGetTensorImpl()).second) continue;
      const bool is_mean = averages && !is_undone && buffer.is_measured();
      (is_mean ? statistics : others).push_back(buffer.tensor);
    }
  };
  const auto is_undone = [&](const Objective& objective) {
    return std::find(undone.begin(), undone.end(), &objective) != undone.end();
  };
  for (const bool pass : {false, true}) {  // a buffer of two objectives is undone with the last
    for (const auto& phase : run.phases) {
      for (const auto& objective : phase.objectives) {
        if (is_undone(objective) == pass) add(objective, pass);
      }
    }
  }
  ranks.take_mean(statistics, samples);
  ranks.take_from(others, source - samples.begin());
}

}  // namespace tanren
