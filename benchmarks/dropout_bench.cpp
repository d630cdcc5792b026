// Forward and backward of the counter-based dropout of ops/ against at::dropout, in turn.
//   dropout_bench [threads] [pairs]
#include "tanren/base/random.h"
#include "tanren/ops/dropout.h"
#include "benchmarks/paired.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdlib>

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 30;
  at::set_num_threads(threads);
  bool kept = true;
  std::printf("%d thread(s), %d pairs, microseconds for forward and backward\n", threads, pairs);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{2, 256, 768}, {8, 256, 3072}, {32, 128}}) {
      const at::Tensor x = at::randn(sizes).to(type).requires_grad_();
      const at::Tensor seed = at::randn(sizes).to(type);
      const RandomScope scope(1, 2, at::arange(sizes[0]));
      const auto measure = [&](auto&& drop) {
        return [&, drop] {
          return bench::seconds([&] {
                   for (int i = 0; i < 20; ++i) {
                     x.mutable_grad().reset();
                     drop(x).backward(seed);
                   }
                 }) /
                 20;
        };
      };
      const auto own =
          measure([](const at::Tensor& t) { return dropout(t, 0.1, site_id("x"), true); });
      const auto other = measure([](const at::Tensor& t) { return at::dropout(t, 0.1, true); });
      const auto same = bench::pair_up(pairs, other, other);
      const auto against = bench::pair_up(pairs, own, other);
      const std::string name = std::string(at::toString(type)) + " " + std::to_string(x.numel());
      bench::print(name + " at::dropout / itself", same, 1e6, "us");
      bench::print(name + " own / at::dropout", against, 1e6, "us");
      kept = kept && against.ratio.median <= 1 + std::abs(same.ratio.median - 1);
    }
  }
  std::printf("not slower than at::dropout: %s\n", kept ? "kept" : "NOT KEPT");
  return 0;
}
