// The checks of int8_bench. A ratio is compared with its goal, which depends on the processor.
// Outputs are checked for their distance.
#pragma once

#include "tanren/ops/int8_gemm.h"
#include "tanren/plan/probe_machine.h"
#include "benchmarks/paired.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace tanren::bench {

// The largest median ratio, on a processor with AMX and on one with VNNI alone. 0: no goal.
struct Goal {
  double amx = 0, vnni = 0;
};
constexpr Goal same_goal(double most) { return {most, most}; }

struct Int8Processor {
  std::string cpu, kernels;
  bool has_onednn = false, has_amx = false;
};

inline Int8Processor int8_processor() {
  const Machine machine = probe_machine();
  const Int8Kernel kernel = int8_kernel();
  return {machine.cpu, std::string(int8_kernel_text(kernel, machine.cpu_amx_int8)),
          kernel == Int8Kernel::onednn, machine.cpu_amx_int8};
}

inline void judge(const Int8Processor& processor, double ratio, const Goal& goal) {
  const double most = processor.has_amx ? goal.amx : goal.vnni;
  if (most <= 0) return;
  if (!processor.has_onednn) {
    std::printf("  %.3f; goals are for VNNI and AMX\n", ratio);
    return;
  }
  std::printf("  %.3f, goal %.2f: %s\n", ratio, most, ratio <= most ? "kept" : "NOT KEPT");
}

inline double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// Whether all that was compared is near. A benchmark whose numbers are wrong must not pass.
class Checks {
 public:
  void near(const std::string& what, double distance, double most) {
    const bool is_near = distance <= most;  // false for NaN
    std::printf("  %s: %.2e apart%s\n", what.c_str(), distance, is_near ? "" : ": NOT NEAR");
    all_ = all_ && is_near;
  }
  void holds(const std::string& what, bool is_true) {
    if (!is_true) std::printf("  %s: NOT SO\n", what.c_str());
    all_ = all_ && is_true;
  }
  bool all() const { return all_; }

 private:
  bool all_ = true;
};

// The arguments of all parts.
struct Int8Asked {
  std::string python;  // empty: no peers
  std::string peer;    // its kind, the only one that is measured; empty: all
  int pairs = 8;
  int64_t threads = 2;
  bool is_small = false;  // small models: only whether everything works
  Int8Processor processor;
  Checks* checks = nullptr;
};

}  // namespace tanren::bench
