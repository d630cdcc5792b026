// Updates of the learning-rate finder against as many updates of the same run without it, both in
// memory: an mlp of one thread, where an update is short, and a small GPT. In turn in one process,
// each from the beginning of the run.
//   find_bench [pairs] [threads of the GPT]
#include "tanren/train/build.h"
#include "benchmarks/paired.h"
#include "cli/sweep/rate_search.h"

#include <cstdlib>
#include <string>

namespace {

using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header

RunConfig config_of(const std::string& kind, int64_t threads) {
  RunConfig config;
  config.run.steps = 1000000;
  config.run.threads = threads;
  config.run.device = "cpu";
  config.precision.mode = "fp32";
  config.model.kind = kind;
  config.data.train.kind = "synthetic";
  config.data.train.samples = 4096;
  config.batch.global_batch = "32";
  config.data.train.fields = {"inputs: float[64] in [-1, 1]", "labels: int[] in [0, 9]"};
  if (kind == "mlp") {
    config.model.hidden = {64, 64};
    return config;
  }
  config.batch.global_batch = "8";
  config.model.num_layers = 2;
  config.model.num_heads = 4;
  config.model.hidden_size = 128;
  config.model.vocab_size = 500;
  config.model.context_length = 64;
  config.data.train.fields = {"inputs: int[64] in [0, 499]", "labels: int[64] in [0, 499]"};
  return config;
}

// Seconds of an update.
double measure(const RunConfig& config, bool finds) {
  const Registry registry;
  Rehearsal run(config, registry, open_datasets(config.data, registry.datasets));
  run.step();  // makes what is made once
  size_t updates = finder_rates().size();
  const double seconds = bench::seconds([&] {
    if (finds) updates = cli::search_rates(run).rates.size();
    for (size_t i = 0; !finds && i < updates; ++i) run.step();
  });
  return seconds / static_cast<double>(updates);
}

void compare(const std::string& kind, int64_t threads, int pairs) {
  const RunConfig config = config_of(kind, threads);
  const auto plain = [&] { return measure(config, /*finds=*/false); };
  const auto finds = [&] { return measure(config, /*finds=*/true); };
  bench::print(kind + ": plain / itself (the A/A spread)", bench::pair_up(pairs, plain, plain), 1e6,
               "µs");
  const auto result = bench::pair_up(pairs, finds, plain);
  bench::print(kind + ": finder / plain", result, 1e6, "µs");
  std::printf("%s: the finder's updates %s (at most 1.1)\n", kind.c_str(),
              result.ratio.median <= 1.1 ? "kept" : "NOT KEPT");
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 30;
  const int64_t threads = argc > 2 ? std::atoll(argv[2]) : 2;
  std::printf("%d pairs of 100 updates\n", pairs);
  compare("mlp", 1, pairs);
  compare("gpt2", threads, pairs);
}
