#include "tanren/anatomy/machine_speed.h"

#include "tanren/base/seconds.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

namespace tanren {

namespace {

constexpr int64_t kCpuMatrix = 1536, kDeviceMatrix = 8192;
constexpr int64_t kCpuCopy = int64_t{128} << 20, kDeviceCopy = int64_t{1} << 30;
constexpr int kTries = 4;
constexpr double kSecondsOfTries = 0.5;  // a slow machine makes fewer tries

// Shortest of a few calls, after one call to warm up.
double best_seconds(const std::function<void()>& call, const std::function<void()>& finish) {
  using Clock = std::chrono::steady_clock;
  const auto wait = [&] {
    if (finish) finish();
  };
  call();
  wait();
  double best = 0, spent = 0;
  for (int i = 0; i < kTries && (i == 0 || spent < kSecondsOfTries); ++i) {
    const auto start = Clock::now();
    call();
    wait();
    const double seconds = seconds_since(start);
    best = i == 0 ? seconds : std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

}  // namespace

MachineSpeed measure_speed(at::Device device, at::ScalarType dtype,
                           const std::function<void()>& finish) {
  const at::NoGradGuard no_grad;
  MachineSpeed speed;
  speed.dtype = at::toString(dtype);
  speed.matrix = device.is_cpu() ? kCpuMatrix : kDeviceMatrix;
  speed.copy_bytes = device.is_cpu() ? kCpuCopy : kDeviceCopy;
  const auto options = at::TensorOptions(device).dtype(dtype);
  {
    const int64_t n = speed.matrix;
    const at::Tensor a = at::full({n, n}, 0.5, options), b = at::full({n, n}, 0.25, options);
    at::Tensor c = at::empty({n, n}, options);
    const double seconds = best_seconds([&] { at::mm_out(c, a, b); }, finish);
    const auto products = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    speed.flops_per_second = 2 * products / seconds;
  }
  const auto bytes = at::TensorOptions(device).dtype(at::kFloat);
  const at::Tensor from = at::ones({speed.copy_bytes / 4}, bytes), to = at::empty_like(from);
  const double seconds = best_seconds([&] { to.copy_(from); }, finish);
  speed.bytes_per_second = 2 * static_cast<double>(speed.copy_bytes) / seconds;
  return speed;
}

}  // namespace tanren
