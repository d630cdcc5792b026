// LossMeter: the sums of the terms of one update, one per microstep. They stay on the device until
// the step's one device read. A separate sum for each microstep costs nothing, and a non-finite
// loss can be traced to its microbatch without a second read.
#pragma once

#include "tanren/base/terms.h"

#include <string>
#include <utility>
#include <vector>

namespace tanren {

class LossMeter {
 public:
  // Adds the detached sums of one microstep over the next `samples` samples of the batch. Every
  // microstep must bring the same terms; Error otherwise.
  void add(const Terms& terms, int64_t samples);

  int64_t microsteps() const { return microsteps_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& count_names() const { return count_names_; }
  // The samples [first, last) of the batch that a microstep covered.
  std::pair<int64_t, int64_t> samples(int64_t microstep) const;
  // [microsteps × terms] 0-dim tensors, microstep-major.
  const std::vector<at::Tensor>& sums() const { return sums_; }
  // Whether entry `index` of sums() had a graph before it was detached.
  bool has_graph(size_t index) const { return has_graph_[index]; }

 private:
  int64_t microsteps_ = 0;
  std::vector<std::string> names_;
  std::vector<std::string> count_names_;
  std::vector<at::Tensor> sums_;
  std::vector<bool> has_graph_;
  std::vector<int64_t> ends_;  // per microstep, the first sample after it
};

}  // namespace tanren
