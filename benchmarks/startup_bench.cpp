// `tanren run` of the MLP to the end of its first step against the bare libtorch program: whole
// processes in turn, wall time and peak resident memory as the kernel counts them.
//   startup_bench [pairs]
#include "benchmarks/paired.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Usage {
  double seconds = 0, megabytes = 0;
};

Usage run(const std::vector<std::string>& command) {
  Usage usage;
  rusage counted{};
  usage.seconds = tanren::bench::seconds([&] {
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<char*> argv;
      argv.reserve(command.size() + 1);
      for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDOUT_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    int status = 0;
    ::wait4(child, &status, 0, &counted);
    if (status != 0) {
      std::fprintf(stderr, "%s failed\n", command[0].c_str());
      std::exit(1);
    }
  });
  usage.megabytes = static_cast<double>(counted.ru_maxrss) / 1024;
  return usage;
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
    ours =
        run({TANREN_BINARY, "run", config.string(), "--quiet", "--out", (folder / "run").string()});
    return ours.seconds;
  };
  const auto other = [&] {
    bare = run({TANREN_BARE});
    return bare.seconds;
  };
  std::printf("%d pairs of whole processes\n", pairs);
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
