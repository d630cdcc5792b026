// The part of LoopState that enforces run.max_time. Only rank 0's clock and saves decide. In an
// update the other ranks receive the stop as any stop request, in the row that all ranks sum.
// Before an evaluation rank 0 sends them the time that is left, because each rank then works on its
// own share.
#include "tanren/base/seconds.h"
#include "tanren/comm/exchange.h"
#include "tanren/train/loop_state.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace tanren {

namespace {

// A guess for use before the first save was timed: the seconds in which a slow disk writes the
// whole state.
double guessed_save_seconds(const RunState& run) {
  constexpr double kBytesPerSecond = 100e6, kLeast = 0.1;
  double bytes = 0;
  for (const TensorMap& tensors :
       {run.model_tensors(), run.optimizer_state().tensors, run.average_state().tensors}) {
    for (const auto& [name, tensor] : tensors) bytes += static_cast<double>(tensor.nbytes());
  }
  return kLeast + bytes / kBytesPerSecond;
}

std::chrono::steady_clock::duration as_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

void LoopState::set_stop_time(double seconds) {
  if (!inputs_.ends_at) return;
  constexpr double kKept = 0.9;  // share of an earlier time that each update keeps
  update_seconds_ = std::max(seconds, kKept * update_seconds_);
  if (save_seconds_ == 0) save_seconds_ = guessed_save_seconds(run_);
  if (is_first_) request_stop();
}

void LoopState::request_stop() {
  // With several ranks the stop takes effect after the next update, because no update is abandoned.
  const double before = save_seconds_ + (parts_.ranks->world().alone() ? 0 : update_seconds_);
  parts_.stop_at = *inputs_.ends_at - as_duration(before);
}

void LoopState::share_stop_time() {
  if (!inputs_.ends_at || result_.session_attempts == 0) return;
  if (is_first_) request_stop();  // a save may have been timed since
  if (parts_.ranks->world().alone()) return;
  double left = 0;  // seconds
  if (is_first_) left = std::chrono::duration<double>(*parts_.stop_at - Clock::now()).count();
  left = sum_numbers(parts_.ranks->world().communicator(), {left})[0];
  if (!is_first_) parts_.stop_evaluations_at = Clock::now() + as_duration(left);
}

bool LoopState::is_out_of_time() {
  if (!parts_.stop_at) return false;
  const Clock::time_point end = Clock::now() + as_duration(save_seconds_ + update_seconds_);
  out_of_time_ = out_of_time_ || end >= *inputs_.ends_at;
  return out_of_time_;
}

std::string LoopState::reason_of_stop() const {
  const bool is_asked = parts_.stop != nullptr && parts_.stop->load(std::memory_order_relaxed);
  const bool is_over = out_of_time_ || (parts_.stop_at && Clock::now() >= *parts_.stop_at);
  return is_over && !is_asked ? "run.max_time = " + plan_.run.max_time : "";
}

}  // namespace tanren
