#include "tanren/metrics/class_counts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// How many classes of each row rank before the row's own class, which `own` [rows, 1] names. Of
// equal scores the lower class ranks first.
at::Tensor ranks_of(const at::Tensor& scores, const at::Tensor& own) {
  const int64_t rows = scores.size(0), classes = scores.size(1);
  at::Tensor ranks = at::empty({rows}, own.options());
  const at::Tensor index = at::arange(classes, own.options());
  // This takes three bytes a score, and eight more where the CPU sums them. A few rows at a time
  // stay in the CPU's cache.
  constexpr int64_t kBytes = 128 << 10;
  const int64_t step =
      scores.is_cpu() ? std::max<int64_t>(kBytes / (11 * std::max<int64_t>(classes, 1)), 1) : rows;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t length = std::min(step, rows - begin);
    const auto part = scores.narrow(0, begin, length), column = own.narrow(0, begin, length);
    const auto value = part.gather(1, column);
    const auto before = part.gt(value).logical_or_(part.eq(value).logical_and_(index.lt(column)));
    ranks.narrow(0, begin, length).copy_(before.sum(1));
  }
  return ranks;
}

}  // namespace

ClassCounts::ClassCounts(ClassCountsOptions options, int64_t classes, at::Device device)
    : options_(std::move(options)), classes_(classes) {
  const auto counts = at::TensorOptions(at::kLong).device(device);
  hits_ = at::zeros({1 + static_cast<int64_t>(options_.ks.size())}, counts);
  per_class_ = at::zeros({3, options_.per_class ? classes : 0}, counts);
  confusion_ = at::zeros({options_.confusion_matrix ? classes * classes : 0}, counts);
}

void ClassCounts::add(const at::Tensor& scores, const at::Tensor& labels) {
  const auto valid = labels.ne(-100);
  const auto targets = labels.masked_fill(valid.logical_not(), 0);
  const auto [best, predicted] = scores.max(1);  // max treats NaN as the largest
  const auto sound = valid.logical_and(best.isnan().logical_not());
  const auto hit = sound.logical_and(predicted.eq(targets));
  hits_[0].add_(valid.sum());
  at::Tensor rank;
  for (size_t i = 0; i < options_.ks.size(); ++i) {
    auto counter = hits_[static_cast<int64_t>(i) + 1];
    if (options_.ks[i] == 1) {
      counter.add_(hit.sum());
      continue;
    }
    if (!rank.defined()) {
      rank = ranks_of(scores, targets.unsqueeze(1));
    }
    counter.add_(rank.lt(options_.ks[i]).logical_and_(sound).sum());
  }
  if (options_.per_class) {
    per_class_[0].scatter_add_(0, targets, valid.to(at::kLong));
    per_class_[1].scatter_add_(0, predicted, sound.to(at::kLong));
    per_class_[2].scatter_add_(0, targets, hit.to(at::kLong));
  }
  if (options_.confusion_matrix) {
    confusion_.scatter_add_(0, targets * classes_ + predicted, sound.to(at::kLong));
  }
}

void ClassCounts::join_over(Communicator& ranks) {
  for (auto* counts : {&hits_, &per_class_, &confusion_}) {
    if (counts->numel() == 0) continue;
    const at::Tensor carried = counts->to(ranks.device(), at::kLong, false, /*copy=*/true);
    ranks.start_sum(carried)->wait_on_host();
    counts->copy_(carried);
  }
}

at::Tensor ClassCounts::values() const {
  return at::cat({hits_, per_class_.reshape(-1), confusion_}).to(at::kDouble);
}

ClassCounts::Result ClassCounts::result(const double* values) const {
  Result result;
  result.targets = *values++;
  for (size_t i = 0; i < options_.ks.size(); ++i) result.hits.push_back(*values++);
  if (options_.per_class) {
    for (int64_t i = 0; i < classes_; ++i) {
      const double targets = values[i], predictions = values[classes_ + i],
                   both = values[2 * classes_ + i];
      result.classes.push_back({.targets = static_cast<int64_t>(targets),
                                .predictions = static_cast<int64_t>(predictions),
                                .precision = share(both, predictions),
                                .recall = share(both, targets),
                                .f1 = share(2 * both, targets + predictions)});
      result.both.push_back(both);
    }
    values += 3 * classes_;
  }
  for (int64_t i = 0; i < confusion_.numel(); ++i) {
    result.confusion_matrix.push_back(static_cast<int64_t>(values[i]));
  }
  return result;
}

}  // namespace tanren
