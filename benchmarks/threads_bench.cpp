// Replicas in threads (parallel.ranks = "threads", one core each) against one process with the same
// cores, on models of several sizes: whole runs in turn, with the step times of their summaries.
// The plan's choice (on_cores in parallel_pass.cpp) is based on the results.
//   threads_bench [pairs] [model…]      without a model: all
#include "benchmarks/paired.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Case {
  const char* name;
  const char* model;  // lines of the section [model]
  const char* shape;  // of the inputs
  int batch, steps;
  bool tokens = false;  // a language model: the inputs are ids, and so are the labels
};

#define GPT(layers, width)                                                                       \
  "kind = \"gpt2\"\nvocab_size = 256\ncontext_length = 64\nnum_heads = 4\nnum_layers = " #layers \
  "\nhidden_size = " #width

// Images of 8 × 8 as in the digits, then wider and deeper models until one operator can use all
// cores.
const std::vector<Case> kCases = {
    {"mlp_9k", "kind = \"mlp\"\nhidden = [64, 64]", "float[64]", 32, 2000},
    {"mlp_40k", "kind = \"mlp\"\nhidden = [256, 64]", "float[64]", 32, 1500},
    {"mlp_340k", "kind = \"mlp\"\nhidden = [512, 512]", "float[64]", 64, 500},
    {"mlp_2m", "kind = \"mlp\"\nhidden = [1024, 1024, 768]", "float[64]", 64, 120},
    {"mlp_6m", "kind = \"mlp\"\nhidden = [2048, 2048, 768]", "float[64]", 64, 50},
    {"convnet_20k", "kind = \"convnet\"\nchannels = [32, 64]\nnorm = \"group\"", "float[1, 8, 8]",
     32, 400},
    {"convnet_100k", "kind = \"convnet\"\nchannels = [32, 64, 128]\nnorm = \"group\"",
     "float[3, 32, 32]", 32, 60},
    {"convnet_1m", "kind = \"convnet\"\nchannels = [64, 128, 256, 256]\nnorm = \"group\"",
     "float[3, 32, 32]", 32, 16},
    {"convnet_6m", "kind = \"convnet\"\nchannels = [128, 256, 512, 1024]\nnorm = \"group\"",
     "float[3, 32, 32]", 32, 6},
    {"convnet_20k_256", "kind = \"convnet\"\nchannels = [32, 64]\nnorm = \"group\"",
     "float[1, 8, 8]", 256, 60},
    {"convnet_100k_256", "kind = \"convnet\"\nchannels = [32, 64, 128]\nnorm = \"group\"",
     "float[3, 32, 32]", 256, 8},
    {"gpt_400k", GPT(2, 128), "int[64]", 16, 80, true},
    {"gpt_3m", GPT(4, 256), "int[64]", 16, 16, true},
    {"gpt_11m", GPT(6, 384), "int[64]", 16, 6, true},
};

class Runs {
 public:
  explicit Runs(const Case& chosen)
      : folder_(std::filesystem::temp_directory_path() / "tanren-threads-bench") {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "run.toml")
        << "[run]\ndevice = \"cpu\"\nsteps = " << chosen.steps << "\n[model]\n"
        << chosen.model
        << "\n[data.train]\nkind = \"synthetic\"\nsamples = 2048\nfields = [\"inputs: "
        << chosen.shape
        << (chosen.tokens ? " in [0, 255]\", \"labels: int[64] in [0, 255]\"]"
                          : " in [-1, 1]\", \"labels: int[] in [0, 9]\"]")
        << "\n[batch]\nglobal_batch = " << chosen.batch
        << "\n[precision]\nmode = \"fp32\"\n[clip]\nnorm = 1.0\n"
        << "[metrics]\njsonl = false\ntensorboard = false\n[parallel]\ncheck_every = 0\n";
  }
  ~Runs() { std::filesystem::remove_all(folder_); }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  // Seconds per sample.
  double operator()(const std::string& more) const {
    const auto out = folder_ / "out";
    std::filesystem::remove_all(out);
    const std::string line = std::string(TANREN_BINARY) + " run " +
                             (folder_ / "run.toml").string() + " --quiet --out " + out.string() +
                             more + " > /dev/null";
    if (std::system(line.c_str()) != 0) {
      std::fprintf(stderr, "%s failed\n", line.c_str());
      std::exit(1);
    }
    const auto summary = nlohmann::json::parse(std::ifstream(out / "summary.json"));
    return 1 / summary["samples_per_second"].get<double>();
  }

 private:
  std::filesystem::path folder_;
};

void measure(const Case& chosen, int pairs) {
  const Runs runs(chosen);
  const std::string replicas = " --set parallel.ranks=threads --set parallel.replicas=" +
                               std::to_string(std::thread::hardware_concurrency());
  const auto one = [&] { return runs(""); };
  const auto threads = [&] { return runs(replicas); };
  tanren::bench::print(std::string(chosen.name) + ": one process / itself (A/A)",
                       tanren::bench::pair_up(pairs, one, one), 1e3 * chosen.batch, "ms a step");
  const auto result = tanren::bench::pair_up(pairs, threads, one);
  tanren::bench::print(std::string(chosen.name) + ": replicas / one process", result,
                       1e3 * chosen.batch, "ms a step");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 5;
  std::printf("%u cores, AdamW, fp32, %d pairs of whole runs\n",
              std::thread::hardware_concurrency(), pairs);
  for (const auto& chosen : kCases) {
    const bool asked = argc < 3 || std::any_of(argv + 2, argv + argc, [&](const std::string& name) {
                         return name == chosen.name;
                       });
    if (asked) measure(chosen, pairs);
  }
  return 0;
}
