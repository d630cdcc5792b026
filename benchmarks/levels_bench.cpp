// A step at precision.level O2 in bf16 against mode = "bf16" without a level, of the GPT of
// gpt_step_bench (4 layers, 256 wide, context 128, dropout 0.1, 16 samples), in one microbatch or
// in several.
//   levels_bench [threads] [pairs] [microbatch]
#include "benchmarks/gpt_loops.h"
#include "benchmarks/paired.h"

#include <cstdlib>

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const int64_t threads = argc > 1 ? std::atoll(argv[1]) : 2;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 30;
  RunConfig config = bench::small_gpt(threads, "bf16", argc > 3 ? std::atoll(argv[3]) : 16);
  const testing::TokenData data(64, 128, 256);
  const auto batches = bench::batches_of(data, 16);
  bench::TanrenStep plain(config, data), plain_too(config, data);
  config.precision.level = "O2";
  bench::TanrenStep leveled(config, data);
  const auto block = [&](auto& loop) { return bench::block_of(loop, batches); };
  std::printf("%lld thread(s), microbatches of %lld, %d pairs of blocks of %zu steps\n",
              static_cast<long long>(threads), static_cast<long long>(config.batch.microbatch),
              pairs, batches.size());
  const auto same = bench::pair_up(pairs, block(plain_too), block(plain));
  const auto against = bench::pair_up(pairs, block(leveled), block(plain));
  bench::print("mode bf16 / itself (the A/A spread)", same, 1e3, "ms");
  bench::print("O2 in bf16 / mode bf16", against, 1e3, "ms");
  return 0;
}
