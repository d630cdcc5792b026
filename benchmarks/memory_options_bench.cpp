// Measures the time that the memory options add to a complete step of a GPT (12 layers, 256 wide, 8
// × 256 tokens, fp32, dropout 0.1, AdamW), in turn in one process: an allocator that only counts
// bytes against torch's allocator, recompute against no recompute, and a released cache against a
// kept one.
//   memory_options_bench [threads] [pairs]
#include "tanren/memory/cache_release.h"
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/paired.h"
#include "benchmarks/tanren_step.h"
#include "tests/support/token_data.h"

#include <cstdlib>
#include <memory>

namespace {

using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header

RunConfig gpt_config(int64_t threads) {
  RunConfig config;
  config.run.steps = 1000000;
  config.run.threads = threads;
  config.run.device = "cpu";
  config.model.kind = "gpt2";
  config.model.num_layers = 12;
  config.model.num_heads = 4;
  config.model.hidden_size = 256;
  config.model.context_length = 256;
  config.batch.global_batch = "8";
  config.clip.norm = 1.0;
  return config;
}

// A training with a function that selects its allocator (`before`) and one to call after each step.
struct Training {
  Training(const RunConfig& config, const Dataset& data, std::function<void()> before,
           std::function<void()> after)
      : use(std::move(before)), done(std::move(after)) {
    use();
    step = std::make_unique<bench::TanrenStep>(config, data);
  }
  double seconds(const GlobalBatch& batch) const {
    use();
    return bench::seconds([&] {
      step->step(batch);
      done();
    });
  }
  std::function<void()> use, done;
  std::unique_ptr<bench::TanrenStep> step;
};

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

int main(int argc, char** argv) {
  const int64_t threads = argc > 1 ? std::atoll(argv[1]) : 2;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 10;
  const tanren::testing::TokenData data(64, 256, 256);
  const GlobalBatch batch = bench::batches_of(data, 8).front();
  const RunConfig config = gpt_config(threads);
  const auto nothing = [] {};
  const auto compare = [&](const char* what, const Training& one, const Training& other) {
    bench::print(
        what,
        bench::pair_up(
            pairs, [&] { return one.seconds(batch); }, [&] { return other.seconds(batch); }),
        1e3, "ms");
  };
  std::printf("%lld thread(s), %d pairs of steps\n", static_cast<long long>(threads), pairs);
  {
    const Training torchs(config, data, uninstall_cpu_allocator, nothing);
    const Training counted(
        config, data, [] { install_cpu_allocator({.cache = false}); }, nothing);
    compare("torch's allocator / itself", torchs, torchs);
    compare("counted / torch's allocator", counted, torchs);
  }
  const auto cached = [] { install_cpu_allocator(); };
  const Training plain(config, data, cached, nothing);
  compare("plain / itself", plain, plain);
  {
    RunConfig lean = config;
    lean.memory.recompute = {"*"};
    const Training recomputed(lean, data, cached, nothing);
    compare("recompute = [\"*\"] / none", recomputed, plain);
    for (const Training* training : {&plain, &recomputed}) {
      const int64_t before = cpu_memory_stats().live_bytes;
      restart_cpu_memory_peak();
      training->seconds(batch);
      std::printf("  %s: %.1f MiB above weights, gradients and state\n",
                  training == &plain ? "none" : "recompute",
                  mebibytes(cpu_memory_stats().recent_peak_bytes - before));
    }
  }
  const auto print_held = [](const char* when) {
    std::printf("  %s: held between steps beyond what tensors use: %.1f MiB\n", when,
                mebibytes(cpu_memory_stats().cached_bytes));
  };
  plain.seconds(batch);
  print_held("never");
  const auto releasing = [&](const char* what, const char* when, int64_t left) {
    CacheRelease release(from_word<ReleaseCache>(when), at::kCPU, [left] {
      return MemoryRoom{left, 100};
    });
    const Training other(config, data, cached, [&] { release.after_step(); });
    compare(what, other, plain);
    other.seconds(batch);
    print_held(when);
  };
  releasing("release_cache pressure, none / never", "pressure", 100);
  releasing("release_cache pressure, short / never", "pressure", 1);
  releasing("release_cache step / never", "step", 100);
  return 0;
}
