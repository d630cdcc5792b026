// Forward and backward of GPT-2's head (width 768, 50 257 tokens) and loss: chunked against all
// scores at once, in turn. Measures time and the peak of live bytes.
//   head_bench [threads] [pairs] [tokens]
#include "tanren/memory/cpu_allocator.h"
#include "tanren/memory/gauge.h"
#include "tanren/model/losses.h"
#include "tanren/precision/autocast_scope.h"
#include "benchmarks/paired.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdlib>

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 3;
  const int64_t tokens = argc > 3 ? std::atoll(argv[3]) : 8192;
  constexpr int64_t kWidth = 768, kClasses = 50257;
  install_cpu_allocator();
  at::set_num_threads(threads);
  MemoryGauge gauge(at::kCPU);
  const at::Tensor states = at::randn({1, tokens, kWidth}).requires_grad_();
  const at::Tensor weight = (at::randn({kClasses, kWidth}) * 0.02).requires_grad_();
  const at::Tensor labels = at::randint(kClasses, {1, tokens}, at::kLong);
  states.mutable_grad() = at::zeros_like(states);
  weight.mutable_grad() = at::zeros_like(weight);
  std::printf(
      "%d thread(s), %d pairs, %ld tokens, width %ld, vocabulary %ld; head and loss, forward and "
      "backward\n",
      threads, pairs, tokens, kWidth, kClasses);
  bool kept = true;
  for (const Mode precision : {Mode::fp32, Mode::bf16}) {
    const std::string name = precision == Mode::fp32 ? "fp32" : "bf16";
    double peak = 0;
    const auto with_chunk = [&](int64_t rows) {
      return [&, rows] {
        const int64_t before = gauge.live();
        gauge.restart();
        const double seconds = bench::seconds([&] {
          const WindowScope window({.mode = precision});
          Term term;
          {
            const AutocastScope autocast(at::kCPU, {.mode = precision});
            term = token_cross_entropy(TokenHead{states, weight, {}}, labels, {0, rows});
          }
          (term.sum / static_cast<double>(tokens)).backward();
        });
        peak = static_cast<double>(gauge.peak() - before);
        return seconds;
      };
    };
    const auto whole = with_chunk(tokens), chunked = with_chunk(0);
    const auto same = bench::pair_up(pairs, whole, whole);
    const auto against = bench::pair_up(pairs, chunked, whole);
    const double whole_peak = peak;
    chunked();
    bench::print(name + " whole / itself", same, 1e3, "ms");
    bench::print(name + " chunked / whole", against, 1e3, "ms");
    std::printf(
        "  peak above weights and gradients: chunked %.1f MiB, whole %.1f MiB, ratio %.3f\n",
        peak / (1 << 20), whole_peak / (1 << 20), peak / whole_peak);
    kept = kept && peak <= whole_peak / 5 && against.ratio.median <= 1.1;
  }
  std::printf("peak at most 1/5, time at most +10 %%: %s\n", kept ? "kept" : "NOT KEPT");
  return 0;
}
