// Recovery: how many samples a microstep takes, and what follows when they did not fit. After a
// failure one sample is tried, which is useful work and measures what a sample costs. The size that
// fits is computed from that and refined by each microstep that is measured, so that a second
// failure is rare. For a model that takes no fewer than some number of samples, that number is
// tried, and sizes are multiples of it. Invariant: never more than the planned microbatch; without
// a failure it costs nothing. Owned by Parts, used by train/microstep on the step's thread.
#pragma once

#include "tanren/memory/device_retry.h"
#include "tanren/memory/gauge.h"
#include "tanren/memory/shortage.h"
#include "tanren/plan/plan.h"

#include <cstdint>
#include <optional>
#include <string>

namespace tanren {

class Recovery {
 public:
  Recovery(const MemoryPlan& plan, at::Device device)
      : plan_(plan), gauge_(device), reserve_(device, plan.reserve_bytes) {}

  // Samples of the next microstep: at least 1, at most `planned`.
  int64_t size(int64_t planned) const;
  // The same if `left` samples are left. No split leaves fewer samples for the last microstep than
  // the model takes, unless the plan's own split does.
  int64_t part(int64_t planned, int64_t left) const;

  // Before a microstep; measures only after a failure.
  void begin();
  // The microstep fitted.
  void fitted(int64_t samples);
  // The microstep did not fit: gives the cache back and decides the next size(). MemoryError if
  // nothing is left to try: recovery is off, the same split failed twice, or a microstep that
  // cannot be split does not fit. `least`: samples that the model takes at least (TaskFacts).
  void failed(int64_t samples, const Shortage& shortage, int64_t least = 1);

  // Bytes that tensors may hold: the gauge's limit, or the plan's if that is lower; 0: unknown.
  int64_t limit() const;
  int64_t num_failures() const { return failures_; }
  const MemoryGauge& gauge() const { return gauge_; }
  // For essential work outside of microsteps.
  DeviceReserve& reserve() { return reserve_; }

 private:
  struct Measured {
    int64_t samples = 0, bytes = 0;
  };
  void predict();
  [[noreturn]] void give_up(int64_t samples, const Shortage& shortage,
                            const std::string& reason) const;

  MemoryPlan plan_;
  MemoryGauge gauge_;
  DeviceReserve reserve_;
  double margin_ = 0.9;      // share of the room that a computed size may take
  int64_t size_ = 0;         // 0: as planned
  int64_t least_ = 1;        // fewest samples of a microstep
  int64_t failed_size_ = 0;  // the smallest that failed since the last long quiet time
  int64_t in_a_row_ = 0;
  int64_t failures_ = 0;
  int64_t quiet_ = 0;                      // microsteps since the last failure
  int64_t base_ = 0;                       // live bytes when the microstep began
  std::optional<Measured> small_, large_;  // measured at different sizes
};

}  // namespace tanren
