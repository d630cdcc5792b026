// Measures how much communication parallel.overlap hides. Two ranks are threads with one core each.
// A measurement in this run slows their link down until communication takes as long as backward.
// Compares steps with parallel.overlap and steps without in alternating blocks. Goal: a ratio of at
// most 0.75. With ZeRO the link carries the same number of bytes: gradients during backward,
// weights during the next forward.
//   overlap_bench [pairs] [steps per block] [parallel.zero]
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/paired.h"
#include "benchmarks/rank_threads.h"
#include "tests/support/token_data.h"

#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>

namespace tanren::bench {
namespace {

RunConfig gpt_config(bool overlap, int zero) {
  auto config = testing::tiny_config("gpt2");
  config.model.num_layers = 8;
  config.model.hidden_size = 256;
  config.model.num_heads = 4;
  config.precision.mode = "fp32";
  config.batch.global_batch = "8";  // 4 × 64 tokens per rank
  config.clip.norm = 1;
  config.parallel.check_every = 0;
  config.parallel.first_bucket_mb = 0.25;
  config.parallel.bucket_mb = 2;
  config.parallel.overlap = overlap;
  config.parallel.zero = zero;
  return config;
}

// Seconds of one backward while two threads work at the same time; the slower of the two.
double backward_seconds(RankThreads& ranks, int times) {
  std::vector<double> took(2);
  ranks.each([&](int rank, testing::RankRun& run) {
    Phase& phase = run.state.phases.front();
    const GlobalBatch batch = run.batches->next();
    const RandomScope random(0, 0, batch.local.ids);
    for (int i = -1; i < times; ++i) {  // one uncounted
      const Terms terms = phase.spec.forward(batch.local);
      const double one = seconds(
          [&] { torch::autograd::backward({terms[0].sum}, {at::ones_like(terms[0].sum)}); });
      if (i >= 0) took[static_cast<size_t>(rank)] += one / times;
    }
  });
  return std::max(took[0], took[1]);
}

int measure(int pairs, int steps, int zero) {
  const testing::TokenData data(512, 64, 256);
  RankThreads calibration(2, gpt_config(false, 0), data, {});
  const double backward = backward_seconds(calibration, 6);
  int64_t bytes = 0;
  calibration.each([&](int rank, testing::RankRun& run) {
    if (rank == 0) bytes = run.objective().gradients.flat()[0].nbytes();
  });
  const ThreadGroup::Options link{.bytes_per_second = static_cast<double>(bytes) / backward};
  RankThreads with(2, gpt_config(true, zero), data, link);
  RankThreads without(2, gpt_config(false, zero), data, link);
  const auto block = [&](RankThreads& ranks) {
    return [&ranks, steps] { return seconds([&] { ranks.steps(steps); }); };
  };
  block(with)();
  block(without)();
  std::printf(
      "GPT of %.1f million parameters, 2 thread ranks × 1 core × 256 tokens, fp32, ZeRO %d; "
      "backward %.0f ms, link %.0f MB/s (%.0f MB in %ld buckets: as long as backward); %d pairs of "
      "%d steps\n",
      static_cast<double>(bytes) / 4e6, zero, backward * 1e3, link.bytes_per_second / 1e6,
      static_cast<double>(bytes) / 1e6, static_cast<long>(with.num_buckets()), pairs, steps);
  print("without overlap / itself (the A/A spread)", pair_up(pairs, block(without), block(without)),
        1e3 / steps, "ms");
  const auto result = pair_up(pairs, block(with), block(without));
  print("with overlap / without", result, 1e3 / steps, "ms");
  const bool kept = result.ratio.median <= 0.75;
  std::printf("median ratio %.3f, goal 0.75: %s\n", result.ratio.median,
              kept ? "kept" : "NOT KEPT");
  return 0;
}

}  // namespace
}  // namespace tanren::bench

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 12;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 4;
  const int zero = argc > 3 ? std::atoi(argv[3]) : 0;
  tanren::install_cpu_allocator();  // as a run does
  return tanren::bench::measure(pairs, steps, zero);
}
