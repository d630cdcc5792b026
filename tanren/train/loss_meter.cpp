#include "tanren/train/loss_meter.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

namespace tanren {

void LossMeter::add(const Terms& terms, int64_t samples) {
  if (microsteps_ == 0) {
    for (const auto& term : terms) {
      names_.push_back(term.name);
      count_names_.push_back(term.count_name);
    }
  }
  if (terms.size() != names_.size()) {
    throw Error(
        fmt::format("[accumulation] a microstep returned {} loss terms, the first one {}; return "
                    "the same terms for every batch",
                    terms.size(), names_.size()));
  }
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].name != names_[i]) {
      throw Error("[accumulation] loss term " + terms[i].name +
                  " stands where the first microstep had " + names_[i] +
                  "; return the same terms in the same order for every batch");
    }
    if (terms[i].sum.dim() != 0) {
      throw Error("[accumulation] loss term " + names_[i] +
                  " is no scalar; return its sum over the samples (it is divided once, by the "
                  "global count)");
    }
    sums_.push_back(terms[i].sum.detach());
    has_graph_.push_back(terms[i].sum.requires_grad());
  }
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + samples);
  ++microsteps_;
}

std::pair<int64_t, int64_t> LossMeter::samples(int64_t microstep) const {
  const auto i = static_cast<size_t>(microstep);
  return {i == 0 ? 0 : ends_.at(i - 1), ends_.at(i)};
}

}  // namespace tanren
