// Speed: sums of samples, tokens and seconds over steps, and their rates. Gets only this session's
// reports, so a resumed run never counts what was trained before. A plain value. Used by the sinks.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>

namespace tanren {

class Speed {
 public:
  void add(const StepReport& report) {
    samples_ += static_cast<double>(report.samples);
    tokens_ += static_cast<double>(report.tokens);
    attempts_ += 1;
    seconds_ += report.seconds;
    wait_seconds_ += report.wait_seconds;
  }
  // Reduces the weight of what was added: add() after fade(0.99) makes a mean over about 100 steps.
  void fade(double factor) {
    for (double* sum : {&samples_, &tokens_, &attempts_, &seconds_, &wait_seconds_}) *sum *= factor;
  }

  bool has_tokens() const { return tokens_ > 0; }
  // 0 until something was added.
  double samples_per_second() const { return seconds_ > 0 ? samples_ / seconds_ : 0; }
  double tokens_per_second() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }
  double seconds_per_attempt() const { return attempts_ > 0 ? seconds_ / attempts_ : 0; }
  double wait_seconds_per_attempt() const { return attempts_ > 0 ? wait_seconds_ / attempts_ : 0; }

 private:
  double samples_ = 0, tokens_ = 0, attempts_ = 0, seconds_ = 0, wait_seconds_ = 0;
};

}  // namespace tanren
