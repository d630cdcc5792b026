#include "tanren/metrics/auroc.h"

#include "tanren/comm/exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {

namespace {

constexpr int64_t kMaxBins = int64_t{1} << 22;  // over all columns; two int64 counts each
// A score is -log p. Bins split [2^-24, 2^8) evenly in the bits of a float, so a bin's width is
// roughly proportional to the value.
constexpr int32_t kLow = (127 - 24) << 23;
constexpr int32_t kHigh = (127 + 8) << 23;
constexpr int64_t kRangeBits = 28;  // kHigh - kLow = 2^28

// Whether each row is of the class of each column: bool [m, columns].
at::Tensor is_own(const at::Tensor& labels, int64_t columns) {
  const auto classes =
      columns == 1 ? at::ones({1}, labels.options()) : at::arange(columns, labels.options());
  return labels.unsqueeze(1).eq(classes);
}

// own, others: number of rows; area: pairs in order, ties half. NaN if there is no pair.
at::Tensor share_of_pairs(const at::Tensor& area, const at::Tensor& own, const at::Tensor& others) {
  return area / (own * others);  // 0 / 0 is NaN
}

}  // namespace

Auroc::Auroc(int64_t classes, at::Device device, int64_t exact_scores)
    : classes_(classes), columns_(classes == 2 ? 1 : classes), exact_scores_(exact_scores) {
  unsound_ = at::zeros({1}, at::TensorOptions(at::kLong).device(device));
  while (bits_ < 20 && (columns_ << (bits_ + 1)) <= kMaxBins) ++bits_;
}

void Auroc::add(const at::Tensor& scores, const at::Tensor& labels) {
  // In double, so that probabilities near 1 keep their order.
  auto shares = at::log_softmax(scores.to(at::kDouble), 1);
  unsound_.add_(shares.isnan().any(1).logical_and_(labels.ne(-100)).sum());
  if (columns_ == 1) shares = shares.narrow(1, 1, 1);
  const auto ranks = shares.neg().to(at::kFloat);
  if (!bins_ && num_kept_ + ranks.numel() <= exact_scores_) {
    num_kept_ += ranks.numel();
    kept_scores_.push_back(ranks);
    kept_labels_.push_back(labels.clone());
    return;
  }
  if (!bins_) begin_bins();
  count(ranks, labels);
}

void Auroc::begin_bins() {
  bins_ = at::zeros({2, columns_ << bits_}, unsound_.options());
  for (size_t i = 0; i < kept_scores_.size(); ++i) count(kept_scores_[i], kept_labels_[i]);
  kept_scores_.clear();
  kept_labels_.clear();
}

void Auroc::join_over(Communicator& ranks) {
  const auto kept = static_cast<double>(num_kept_);
  const auto sums = sum_numbers(ranks, {kept, bins_ ? 1.0 : 0.0});
  const at::Device own = unsound_.device(), carrier = ranks.device();
  const auto joined = [&](const at::Tensor& counts) {
    const at::Tensor carried = counts.to(carrier, at::kLong, false, /*copy=*/true);
    ranks.start_sum(carried)->wait_on_host();
    return carried.to(own);
  };
  unsound_ = joined(unsound_);
  if (sums[1] == 0 && sums[0] <= static_cast<double>(exact_scores_)) {
    const auto options = unsound_.options();
    kept_scores_.insert(kept_scores_.begin(), at::empty({0, columns_}, options.dtype(at::kFloat)));
    kept_labels_.insert(kept_labels_.begin(), at::empty({0}, options));
    kept_scores_ = {gather_rows(ranks, at::cat(kept_scores_).to(carrier)).to(own)};
    kept_labels_ = {gather_rows(ranks, at::cat(kept_labels_).to(carrier)).to(own)};
    num_kept_ = static_cast<int64_t>(sums[0]);
    return;
  }
  if (!bins_) begin_bins();
  bins_ = joined(*bins_);
}

void Auroc::count(const at::Tensor& scores, const at::Tensor& labels) {
  auto bin = scores.contiguous().view(at::kInt).clamp(kLow, kHigh - 1).sub_(kLow);
  bin = bin.bitwise_right_shift(kRangeBits - bits_).to(at::kLong);
  bin.add_(at::arange(columns_, labels.options()).bitwise_left_shift(bits_));
  const auto own = is_own(labels, columns_);
  const auto valid = labels.ne(-100).unsqueeze(1);
  const auto others = own.logical_not().logical_and_(valid);
  (*bins_)[0].scatter_add_(0, bin.view(-1), others.to(at::kLong).view(-1));
  (*bins_)[1].scatter_add_(0, bin.view(-1), own.to(at::kLong).view(-1));
}

at::Tensor Auroc::exact_values() const {
  const auto options = unsound_.options().dtype(at::kDouble);
  if (num_kept_ == 0) return at::full({columns_}, std::nan(""), options);
  const auto labels = at::cat(kept_labels_);
  const auto valid = labels.ne(-100);
  std::vector<at::Tensor> areas;
  for (int64_t column = 0; column < columns_; ++column) {
    std::vector<at::Tensor> pieces;
    for (const auto& piece : kept_scores_) pieces.push_back(piece.select(1, column));
    // Ignored rows get 1 and rank after all others, whose negated scores are at most 0. There they
    // change no other row's rank.
    const auto scores = at::cat(pieces).neg_().masked_fill_(valid.logical_not(), 1.0);
    const auto sorted = std::get<0>(scores.sort());
    const auto rank = at::searchsorted(sorted, scores, false, /*right=*/false)
                          .add(at::searchsorted(sorted, scores, false, /*right=*/true))
                          .to(at::kDouble)
                          .add_(1)
                          .div_(2);
    const auto own = labels.eq(columns_ == 1 ? 1 : column);
    const auto num_own = own.sum().to(at::kDouble);
    const auto num_others = valid.sum().to(at::kDouble) - num_own;
    const auto area = rank.mul(own).sum() - num_own * (num_own + 1) / 2;
    areas.push_back(share_of_pairs(area, num_own, num_others));
  }
  return at::stack(areas);
}

at::Tensor Auroc::values() const {
  const auto unsound = unsound_.to(at::kDouble);
  if (!bins_) {
    const auto areas = exact_values();
    return at::cat({unsound, areas, at::zeros_like(areas)});
  }
  const auto bins = bins_->view({2, columns_, -1}).to(at::kDouble);
  const auto others = bins[0], own = bins[1];
  const auto num_others = others.sum(1), num_own = own.sum(1);
  // A higher bin holds smaller probabilities: a row beats the rows in all higher bins.
  const auto beaten = num_others.unsqueeze(1) - others.cumsum(1);
  const auto ties = (own * others).sum(1);
  return at::cat({unsound, share_of_pairs((own * beaten).sum(1) + ties / 2, num_own, num_others),
                  share_of_pairs(ties / 2, num_own, num_others)});
}

Auroc::Result Auroc::result(const double* values) const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const bool is_sound = *values == 0;
  const double* areas = values + 1;
  const double* errors = areas + columns_;
  Result result;
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < columns_; ++i) {
    const double area = is_sound ? areas[i] : kNan;
    result.classes.push_back(area);
    if (std::isnan(area)) continue;
    sum += area;
    result.error = std::max(result.error, errors[i]);
    ++count;
  }
  if (columns_ == 1) result.classes.push_back(result.classes[0]);
  result.mean = count > 0 ? sum / static_cast<double>(count) : kNan;
  return result;
}

}  // namespace tanren
