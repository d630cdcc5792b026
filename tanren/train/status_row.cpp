#include "tanren/train/status_row.h"

#include "tanren/base/device_reads.h"

#include <ATen/ATen.h>

namespace tanren {

namespace {

// Stacks scalars in one dtype.
at::Tensor stacked(std::vector<at::Tensor> values) {
  for (const auto& value : values) {
    if (value.scalar_type() == values[0].scalar_type()) continue;
    for (auto& other : values) other = other.to(at::kDouble);
    break;
  }
  return at::stack(values);
}

// Adds the rows one after the other, as take() does on a single rank, so that both sums have the
// same bits.
at::Tensor sum_in_order(const at::Tensor& rows) {
  at::Tensor sum = rows[0].clone();
  for (int64_t i = 1; i < rows.size(0); ++i) sum.add_(rows[i]);
  return sum;
}

}  // namespace

StatusRow::Part StatusRow::add(const std::vector<at::Tensor>& scalars, Join join) {
  if (join == Join::own || ranks_.world().alone()) {
    own_.insert(own_.end(), scalars.begin(), scalars.end());
    return {.begin = own_.size() - scalars.size(), .length = scalars.size()};
  }
  const Part part{.join = join, .begin = num_shared_, .length = scalars.size()};
  for (const auto& scalar : scalars) {
    share(scalar.to(at::kDouble).reshape({1}));
  }
  return part;
}

StatusRow::Part StatusRow::add(const std::vector<double>& numbers) {
  numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  return {.join = Join::sum,
          .is_from_host = true,
          .begin = numbers_.size() - numbers.size(),
          .length = numbers.size()};
}

StatusRow::Part StatusRow::add(const SumsOfSquares& squares) {
  if (!squares.on_device.defined()) return add(squares.on_host);
  share(squares.on_device);
  const auto length = static_cast<size_t>(squares.on_device.numel());
  return {.join = Join::sum, .begin = num_shared_ - length, .length = length};
}

StatusRow::Part StatusRow::add_column_sums(const Part& own, const std::vector<at::Tensor>& scalars,
                                           size_t columns) {
  if (ranks_.world().alone()) return {.begin = own.begin, .length = own.length, .columns = columns};
  const Part part{.join = Join::sum, .begin = num_shared_, .length = columns};
  const auto width = static_cast<int64_t>(columns);
  if (scalars.empty()) {
    share(at::zeros({width}, at::TensorOptions(at::kDouble).device(device_)));
  } else {
    const at::Tensor rows = stacked(scalars).to(at::kDouble).view({-1, width});
    share(ranks_.data().alone() ? sum_in_order(rows) : rows.sum(0));
  }
  return part;
}

void StatusRow::share(const at::Tensor& values) {
  shared_.push_back(values);
  num_shared_ += static_cast<size_t>(values.numel());
}

void StatusRow::read() {
  at::Tensor row = own_.empty() ? at::Tensor() : stacked(own_);
  if (!ranks_.world().alone()) {
    Communicator& comm = ranks_.world().communicator();
    shared_.push_back(at::tensor(numbers_, at::kDouble).to(device_, /*non_blocking=*/true));
    const int64_t num_shared = static_cast<int64_t>(num_shared_ + numbers_.size());
    if (row.defined()) shared_.push_back(row.to(at::kDouble));
    row = at::cat(shared_).to(comm.device_for(device_));
    comm.start_sum(row.narrow(0, 0, num_shared))->wait_on_host();
  } else if (!shared_.empty()) {
    if (row.defined()) shared_.push_back(row.to(at::kDouble));
    row = at::cat(shared_);
  }
  const auto host = row.defined() ? read_to_host(row) : std::vector<double>();
  const auto middle = host.end() - static_cast<std::ptrdiff_t>(own_.size());
  read_shared_.assign(host.begin(), middle);
  read_own_.assign(middle, host.end());
  if (ranks_.world().alone())
    read_shared_.insert(read_shared_.end(), numbers_.begin(), numbers_.end());
}

std::vector<double> StatusRow::take(const Part& part) const {
  const auto& all = part.join == Join::own ? read_own_ : read_shared_;
  const size_t begin = part.begin + (part.is_from_host ? num_shared_ : 0);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
  std::vector<double> values(first, first + static_cast<std::ptrdiff_t>(part.length));
  if (part.columns == 0) return values;
  std::vector<double> sums(part.columns, 0.0);
  for (size_t i = 0; i < values.size(); ++i) sums[i % part.columns] += values[i];
  return sums;
}

}  // namespace tanren
