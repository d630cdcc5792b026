// `tanren run` of one step of the MLP against the bare libtorch program, and `tanren launch` of
// that run on 2 and 4 ranks against one rank. Whole processes in turn: wall time, and peak resident
// memory as counted by the kernel.
//   startup_bench [pairs] [alone|ranks]
#include "benchmarks/paired.h"
#include "benchmarks/whole_process.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using tanren::bench::run_whole;
using tanren::bench::Usage;

// From the launcher's start to the end of all ranks, which takes a little longer than the first
// step.
void measure_ranks(int pairs, const std::string& config, const std::string& out) {
  const auto seconds_of = [&](const std::vector<std::string>& before) {
    std::filesystem::remove_all(out);
    std::vector<std::string> command = {TANREN_BINARY};
    command.insert(command.end(), before.begin(), before.end());
    for (const auto& word :
         {std::string("run"), config, std::string("--quiet"), std::string("--out"), out}) {
      command.push_back(word);
    }
    return run_whole(command).seconds;
  };
  const auto one = [&] { return seconds_of({}); };
  tanren::bench::print("tanren run / itself (the A/A spread)",
                       tanren::bench::pair_up(pairs, one, one), 1e3, "ms");
  for (const auto& [ranks, most] : {std::pair("2", 1.5), std::pair("4", 2.6)}) {
    const auto several = [&, ranks = ranks] { return seconds_of({"launch", "-n", ranks}); };
    const auto result = tanren::bench::pair_up(pairs, several, one);
    tanren::bench::print(std::string("tanren launch -n ") + ranks + " run / tanren run", result,
                         1e3, "ms");
    std::printf("start of %s ranks %s (at most %.1f)\n", ranks,
                result.ratio.median <= most ? "kept" : "NOT KEPT", most);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 30;
  const auto folder = std::filesystem::temp_directory_path() / "tanren-startup-bench";
  std::filesystem::create_directories(folder);
  const auto config = folder / "mlp.toml";
  std::ofstream(config)
      << "[run]\nsteps = 1\n[model]\nkind = \"mlp\"\n[precision]\nmode = \"fp32\"\n"
         "[data.train]\nkind = \"synthetic\"\nsamples = 64\n"
         "fields = [\"inputs: float[64] in [-1, 1]\", \"labels: int[] in [0, 9]\"]\n";
  Usage ours, bare;
  const auto tanren = [&] {
    std::filesystem::remove_all(folder / "run");
    ours = run_whole(
        {TANREN_BINARY, "run", config.string(), "--quiet", "--out", (folder / "run").string()});
    return ours.seconds;
  };
  const auto other = [&] {
    bare = run_whole({TANREN_BARE});
    return bare.seconds;
  };
  std::printf("%d pairs of whole processes\n", pairs);
  const std::string part = argc > 2 ? argv[2] : "";
  if (part != "alone") measure_ranks(pairs, config.string(), (folder / "run").string());
  if (part == "ranks") {
    std::filesystem::remove_all(folder);
    return 0;
  }
  tanren::bench::print("bare / itself (the A/A spread)",
                       tanren::bench::pair_up(pairs, other, other), 1e3, "ms");
  const auto result = tanren::bench::pair_up(pairs, tanren, other);
  tanren::bench::print("tanren run, one step / bare libtorch", result, 1e3, "ms");
  std::printf("peak resident memory %.0f MB against %.0f MB, ratio %.3f\n", ours.megabytes,
              bare.megabytes, ours.megabytes / bare.megabytes);
  std::printf("start-up %s (at most 1.3), memory %s (at most 1.1 plus buffers)\n",
              result.ratio.median <= 1.3 ? "kept" : "NOT KEPT",
              ours.megabytes <= 1.1 * bare.megabytes ? "kept" : "NOT KEPT");
  std::filesystem::remove_all(folder);
}
