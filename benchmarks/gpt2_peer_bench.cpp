// GPT-2 124M, 8 × 256 tokens in 4 microbatches, dropout 0.1: tanren's update against PyTorch eager
// with transformers (peers/gpt2_torch.py), step by step in turn. Run with OMP_WAIT_POLICY=PASSIVE,
// so that the one that waits does not spin; TANREN_PEER_PYTHON names a Python with torch and transformers.
//   gpt2_peer_bench [mode] [pairs] [threads]
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/gpt_loops.h"
#include "benchmarks/paired.h"
#include "benchmarks/peers/peer_process.h"

#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  if (python == nullptr) {
    std::puts("skipped: TANREN_PEER_PYTHON names no Python with torch and transformers");
    return 0;
  }
  const std::string mode = argc > 1 ? argv[1] : "bf16";
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 30;
  const std::string threads = argc > 3 ? argv[3] : "2";
  bench::PeerProcess peer(
      {python, TANREN_SOURCE_DIR "/benchmarks/peers/gpt2_torch.py", mode, threads});
  install_cpu_allocator();  // as a run does
  RunConfig config;
  config.run.steps = 1000000;
  config.run.threads = std::atoll(threads.c_str());
  config.run.device = "cpu";
  config.model.kind = "gpt2";
  config.precision.mode = mode;
  config.batch.global_batch = "8";
  config.batch.microbatch = 2;
  config.clip.norm = 1.0;
  config.optimizer.learning_rate = 1e-5;
  const testing::TokenData data(8, 256, 50257);
  const auto batches = bench::batches_of(data, 8);
  bench::TanrenGpt ours(config, data);
  const auto own = [&] { return bench::seconds([&] { ours.step(batches[0]); }); };
  const auto other = [&] { return peer.block(); };
  std::printf("%s thread(s), %s, %d pairs of steps, seconds a step\n", threads.c_str(),
              mode.c_str(), pairs);
  const auto same = bench::pair_up(pairs, other, other);
  const auto against = bench::pair_up(pairs, own, other);
  bench::print("PyTorch eager / itself (the A/A spread)", same, 1, "s");
  bench::print("tanren / PyTorch eager", against, 1, "s");
  const double goal = mode == "fp32" ? 0.9 : 0.7;
  std::printf("median ratio %.3f, goal %.1f: %s\n", against.ratio.median, goal,
              against.ratio.median <= goal ? "kept" : "NOT KEPT");
  return 0;
}
