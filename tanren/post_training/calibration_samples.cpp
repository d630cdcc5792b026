#include "tanren/post_training/calibration_samples.h"

#include "tanren/base/error.h"
#include "tanren/config/run_config.h"
#include "tanren/data/collated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tanren {

namespace {

Collated collated_of(const Dataset& dataset, const std::vector<int64_t>& numbers, size_t begin,
                     size_t count) {
  const auto from = numbers.begin() + static_cast<std::ptrdiff_t>(begin);
  return collated(dataset, {from, from + static_cast<std::ptrdiff_t>(count)});
}

}  // namespace

std::vector<int64_t> spread_over(int64_t size, int64_t most) {
  const int64_t count = std::min(size, most);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(i * size / count);
  return numbers;
}

std::vector<Collated> batches_of(const Dataset& dataset, const std::vector<int64_t>& numbers,
                                 int64_t at_once) {
  const auto most = static_cast<size_t>(std::max<int64_t>(at_once, 1));
  std::vector<Collated> batches;
  for (size_t begin = 0; begin < numbers.size(); begin += most) {
    Collated some = collated_of(dataset, numbers, begin, std::min(most, numbers.size() - begin));
    if (some.batch.size() > 0) batches.push_back(std::move(some));
  }
  return batches;
}

int64_t checked_count(const std::vector<Collated>& batches) {
  int64_t count = 0;
  for (const Collated& some : batches) count += some.batch.size();
  if (count >= kFewestSamples) return count;
  throw InputError(fmt::format("[quantize] {} samples to calibrate with; give at least {}", count,
                               kFewestSamples));
}

Batch first_given(const Dataset& dataset, const std::vector<int64_t>& numbers, int64_t wanted) {
  for (auto asked = static_cast<size_t>(wanted);; asked *= 2) {
    const size_t count = std::min(asked, numbers.size());
    const Batch batch = collated_of(dataset, numbers, 0, count).batch;
    if (batch.size() >= wanted) return batch.slice(0, wanted);
    if (count < numbers.size()) continue;
    throw InputError(fmt::format(
        "[quantize] the dataset gives {} of the {} samples that calibrate in one batch, and times "
        "are measured with {}; let collate return a row for each index",
        batch.size(), count, wanted));
  }
}

}  // namespace tanren
