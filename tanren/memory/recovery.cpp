#include "tanren/memory/recovery.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/memory/fault.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tanren {

namespace {

// Share of the free room that a computed size may take, because blocks do not fill pages and
// samples differ in length. It shrinks each time a computed size does not fit.
constexpr double kMargin = 0.9;
constexpr double kLessMargin = 0.8;
// Microsteps without a failure after which a size that failed is tried again.
constexpr int64_t kLongQuiet = 512;

}  // namespace

int64_t Recovery::size(int64_t planned) const {
  return size_ > 0 ? std::min(size_, planned) : planned;
}

int64_t Recovery::part(int64_t planned, int64_t left) const {
  const int64_t most = size(planned), last = left % planned;
  const bool as_planned = most == planned && (left < planned || last == 0 || last >= least_);
  const bool may_split = failures_ > 0 && plan_.recovery != RecoveryMode::same_split;
  if (!may_split || least_ == 1 || as_planned) return std::min(most, left);
  // Splits as evenly as possible, so that the last part has enough samples. If the model takes only
  // multiples of a number, `planned`, `left` and `least_` are multiples of it, and so is `step`.
  const int64_t step = std::gcd(std::gcd(planned, left), least_);
  const int64_t parts =
      std::clamp<int64_t>((left + most - 1) / most, 1, std::max<int64_t>(left / least_, 1));
  const int64_t even = (left / step + parts - 1) / parts * step;
  return std::min(even, planned);
}

void Recovery::begin() {
  if (failures_ == 0 || !gauge_.counts()) return;
  base_ = gauge_.live();
  gauge_.restart();
}

void Recovery::fitted(int64_t samples) {
  in_a_row_ = 0;
  if (failures_ == 0 || size_ == 0) return;
  ++quiet_;
  if (gauge_.counts()) {
    const Measured now{samples, gauge_.peak() - base_};
    if (!small_ || samples <= small_->samples) {
      if (small_ && samples < small_->samples) large_ = small_;
      small_ = now;
    } else {
      large_ = now;
    }
  }
  predict();
}

int64_t Recovery::limit() const {
  const int64_t told = gauge_.limit(), planned = plan_.limit_bytes - plan_.reserve_bytes;
  return planned > 0 && told > 0 ? std::min(told, planned) : told;
}

// Extends the line through the measured sizes up to the available room.
void Recovery::predict() {
  if (quiet_ >= kLongQuiet) {
    quiet_ = 0;
    failed_size_ = 0;  // whatever took the memory may be gone
    margin_ = kMargin;
  }
  int64_t next = size_ * 2;
  const int64_t limit = this->limit();
  if (small_ && limit > 0) {
    double slope = static_cast<double>(small_->bytes) / static_cast<double>(small_->samples);
    if (large_ && large_->bytes > small_->bytes) {
      slope = static_cast<double>(large_->bytes - small_->bytes) /
              static_cast<double>(large_->samples - small_->samples);
    }
    const Measured& from = large_ ? *large_ : *small_;
    const double room = margin_ * static_cast<double>(limit - base_);
    const double more = (room - static_cast<double>(from.bytes)) / std::max(slope, 1.0);
    next = std::max<int64_t>(1, from.samples + static_cast<int64_t>(std::floor(more)));
  }
  if (failed_size_ > 0) next = std::min(next, failed_size_ - 1);
  size_ = std::max(next - next % least_, least_);
}

void Recovery::failed(int64_t samples, const Shortage& shortage, int64_t least) {
  least_ = std::max<int64_t>(least, 1);
  ++failures_;
  ++in_a_row_;
  quiet_ = 0;
  gauge_.release_cache();
  if (plan_.recovery == RecoveryMode::off) give_up(samples, shortage, "memory.recovery is off");
  if (plan_.recovery == RecoveryMode::evaluation) {
    give_up(samples, shortage,
            "and no rank repeats a microstep alone where batch norm is over all of them "
            "(parallel.buffers = \"synchronised\"); lower batch.microbatch");
  }
  const bool again = in_a_row_ < 2;  // the first failure may have been a passing shortage
  const bool is_smallest = samples < 2 * least_;
  if (plan_.recovery == RecoveryMode::same_split || is_smallest) {
    if (!again) {
      give_up(samples, shortage,
              samples == 1 ? "one sample does not fit"
              : is_smallest
                  ? fmt::format("and the model takes at least {} at once", to_text(least_))
                  : "and a smaller microbatch would change the numbers (batch norm sees its "
                    "microbatch; memory.recovery = \"split\" allows it)");
    }
    if (plan_.recovery != RecoveryMode::same_split) size_ = least_;
    return;
  }
  // A size that failed twice is not tried again before a long quiet time; one that failed once may
  // be, if later measurements say that it fits.
  if (size_ > 0) margin_ *= kLessMargin;
  if (size_ > 0) failed_size_ = failed_size_ > 0 ? std::min(failed_size_, samples) : samples;
  size_ = least_;
}

void Recovery::give_up(int64_t samples, const Shortage& shortage, const std::string& reason) const {
  std::string held;
  const auto owners = shortage.owners.empty() ? gauge_.owners() : shortage.owners;
  for (const auto& [kind, bytes] : owners) {
    held += (held.empty() ? "" : ", ") + kind + " " + bytes_text(static_cast<double>(bytes));
  }
  const int64_t limit = this->limit();
  std::string disguise;
  if (const Fault fault = fault_of(shortage.message); fault != Fault::none) {
    MemoryState state;
    state.update(gauge_);
    disguise = "; " + shortage.message + ": " + explanation(fault, state, samples);
  }
  throw MemoryError(fmt::format(
      "[memory] out of memory with {} samples{}{}{}{}{}; {}{}", samples,
      shortage.block.empty() ? "" : " at " + shortage.block,
      shortage.operation.empty() ? "" : " (" + shortage.operation + ")",
      shortage.bytes > 0 ? ", " + bytes_text(static_cast<double>(shortage.bytes)) + " asked for"
                         : "",
      limit > 0 ? ", limit " + bytes_text(static_cast<double>(limit)) : "",
      held.empty() ? "" : "; held: " + held, reason, disguise));
}

}  // namespace tanren
