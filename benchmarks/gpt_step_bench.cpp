// tanren's update of a small GPT (4 layers, 256 wide, context 128, dropout 0.1, 16 samples in 4
// microbatches, bf16) against a hand-written libtorch loop over the same model.
//   gpt_step_bench [threads] [pairs] [mode]
#include "benchmarks/gpt_loops.h"
#include "benchmarks/paired.h"

#include <cstdlib>

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const int64_t threads = argc > 1 ? std::atoll(argv[1]) : 2;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 30;
  const RunConfig config = bench::small_gpt(threads, argc > 3 ? argv[3] : "bf16", /*microbatch=*/4);
  const testing::TokenData data(64, 128, 256);
  const auto batches = bench::batches_of(data, 16);
  bench::TanrenStep ours(config, data);
  bench::HandGpt hand(config, data), hand_too(config, data);
  const auto block = [&](auto& loop) { return bench::block_of(loop, batches); };
  std::printf("%lld thread(s), %s, %d pairs of blocks of %zu steps, milliseconds a step\n",
              static_cast<long long>(threads), config.precision.mode.c_str(), pairs,
              batches.size());
  const auto same = bench::pair_up(pairs, block(hand_too), block(hand));
  const auto against = bench::pair_up(pairs, block(ours), block(hand));
  bench::print("hand-written / itself (the A/A spread)", same, 1e3, "ms");
  bench::print("tanren / hand-written", against, 1e3, "ms");
  const double allowed = 1.01 + std::abs(same.ratio.median - 1);
  std::printf("median ratio %.4f, allowed %.4f: %s\n", against.ratio.median, allowed,
              against.ratio.median <= allowed ? "kept" : "NOT KEPT");
  return 0;
}
