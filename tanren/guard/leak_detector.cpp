#include "tanren/guard/leak_detector.h"

#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/guard/allocation_log.h"

#include <algorithm>

namespace tanren {

namespace {

constexpr int64_t kRecorded = 2;  // steps
constexpr int64_t kPatience =
    8;  // steps: batches fetched ahead and the last report are gone by then
constexpr int64_t kWorthTelling = 1 << 20;  // bytes: smaller growth is not reported

}  // namespace

LeakDetector::LeakDetector(int64_t steps) : next_look_(steps) {}
LeakDetector::~LeakDetector() = default;
LeakDetector::LeakDetector(LeakDetector&&) noexcept = default;
LeakDetector& LeakDetector::operator=(LeakDetector&&) noexcept = default;

void LeakDetector::step(const std::function<int64_t()>& live_bytes) {
  ++count_;
  if (next_look_ == 0 || count_ < next_look_ || !warning_.empty()) return;
  const int64_t since = count_ - next_look_;
  if (since == 0) {
    log_ = std::make_unique<AllocationLog>();
  } else if (since < kRecorded) {
    log_->next_step();
  } else if (since == kRecorded) {
    log_->stop();
  } else if (since == kRecorded + kPatience) {
    judge(live_bytes);
    log_.reset();
    next_look_ = std::max(2 * next_look_, count_ + 1);  // a look may last beyond twice its start
  }
}

void LeakDetector::judge(const std::function<int64_t()>& live_bytes) {
  const Survivors first = log_->survivors(0), second = log_->survivors(kRecorded - 1);
  const int64_t now = live_bytes ? live_bytes() : 0;
  const int64_t grown = bytes_before_ < 0 ? 0 : now - bytes_before_;
  const int64_t steps = count_ - count_before_;
  bytes_before_ = now;
  count_before_ = count_;
  if (first.nodes > 0 && second.nodes > 0) {
    warn(fmt::format(
        "each step leaves {} autograd nodes alive, the last {} of {}: a loss, or what was computed "
        "from it, is kept with its graph; keep its .item() or .detach() instead",
        to_text(second.nodes), second.last_node, second.last_operator));
    return;
  }
  // Tensors without a graph may stay for a good reason (a window of the last losses), so this warns
  // only if live memory has also grown.
  const int64_t kept = std::min(first.bytes, second.bytes);
  if (kept > 0 && grown >= kWorthTelling && grown >= kept * steps / 2) {
    warn(fmt::format(
        "each step leaves {} tensors of {} bytes alive, the largest of {}, and live memory grew by "
        "{} bytes in {} steps; keep numbers instead, or bound what keeps them",
        to_text(second.tensors), to_text(second.bytes), second.largest_tensor, to_text(grown),
        to_text(steps)));
  }
}

void LeakDetector::warn(const std::string& text) {
  warning_ = fmt::format("[guard] after {} steps: {}", to_text(count_), text);
  log(warning_);
}

}  // namespace tanren
