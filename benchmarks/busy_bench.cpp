// Measures complete runs on an idle machine and together with processes that use the cores
// ("burners"), for each way in which OpenMP threads can wait, in turn (A B C D A B …). Goals:
// under load tanren takes at most 1.2 times as long as the best other way, and on an idle machine
// at most 1.05 times as long as libgomp's default.
//   busy_bench [rounds] [burners] [model…]      without a model: all
#include "benchmarks/paired.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

using tanren::bench::Spread;

constexpr double kPatience = 60;  // seconds; a run that takes longer is killed

struct Case {
  std::string name;
  std::string file;  // empty: `text` is written to a file
  std::string text;
  int alone_steps = 0, loaded_steps = 0;  // per run
};

std::string synthetic(const std::string& model, const std::string& inputs,
                      const std::string& labels, int batch) {
  return "[run]\ndevice = \"cpu\"\n[model]\n" + model +
         "\n[data.train]\nkind = \"synthetic\"\nsamples = 2048\nfields = [\"inputs: " + inputs +
         "\", \"labels: " + labels + "\"]\n[batch]\nglobal_batch = " + std::to_string(batch) +
         "\n[precision]\nmode = \"fp32\"\n[clip]\nnorm = 1.0\n";
}

std::vector<Case> cases() {
  const std::string examples = TANREN_SOURCE_DIR "/examples/digits/";
  const std::string tokens = "int[64] in [0, 255]";
  return {
      {"mlp", "",
       synthetic("kind = \"mlp\"\nhidden = [64, 64]", "float[64] in [-1, 1]", "int[] in [0, 9]",
                 32),
       3000, 600},
      {"digits", examples + "run.toml", "", 600, 100},
      {"batch_norm", examples + "batch_norm.toml", "", 600, 100},
      {"gpt_4_256", "",
       synthetic("kind = \"gpt2\"\nvocab_size = 256\ncontext_length = 64\nnum_heads = 4\n"
                 "num_layers = 4\nhidden_size = 256",
                 tokens, tokens, 16),
       12, 4},
      {"bert_tiny", "",
       synthetic("kind = \"bert\"\nvocab_size = 256\ncontext_length = 64\nnum_heads = 2\n"
                 "num_layers = 2\nhidden_size = 128\nintermediate_size = 512",
                 tokens, "int[] in [0, 9]", 16),
       60, 15},
      {"convnet_32", "",
       synthetic("kind = \"convnet\"\nchannels = [32, 64, 128]\nnorm = \"group\"",
                 "float[3, 32, 32] in [-1, 1]", "int[] in [0, 9]", 32),
       40, 8},
  };
}

// A way in which an operator's threads wait.
struct Way {
  const char* name;
  std::string variable;  // NAME=value; empty: tanren's default
};

const std::vector<Way> kWays = {{"libgomp's own", "GOMP_SPINCOUNT=300000"},  // its default
                                {"passive", "OMP_WAIT_POLICY=PASSIVE"},
                                {"1000 spins", "GOMP_SPINCOUNT=1000"},
                                {"tanren", ""}};

pid_t start(const std::vector<std::string>& command, const std::string& variable) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::unsetenv("OMP_WAIT_POLICY");
  ::unsetenv("GOMP_SPINCOUNT");
  const auto sign = variable.find('=');
  if (!variable.empty()) {
    ::setenv(variable.substr(0, sign).c_str(), variable.substr(sign + 1).c_str(), 1);
  }
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

// Seconds of a whole run; infinite if it took longer than kPatience.
double run(const std::string& config, const std::string& out, int steps, const Way& way) {
  std::filesystem::remove_all(out);
  std::vector<std::string> command = {TANREN_BINARY, "run", config, "--quiet", "--out", out};
  std::vector<std::string> sets = {"run.steps=" + std::to_string(steps), "run.epochs=none",
                                   "metrics.jsonl=false", "metrics.tensorboard=false"};
  if (!way.variable.empty()) {
    sets.push_back("run.threads=" + std::to_string(std::thread::hardware_concurrency()));
  }
  for (const auto& set : sets) {
    command.emplace_back("--set");
    command.push_back(set);
  }
  int status = 0;
  bool in_time = false;
  const double seconds = tanren::bench::seconds([&] {
    const pid_t child = start(command, way.variable);
    for (double slept = 0; slept < kPatience && !in_time; slept += 1e-3) {
      in_time = ::waitpid(child, &status, WNOHANG) == child;
      if (!in_time) ::usleep(1000);
    }
    if (in_time) return;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  });
  if (in_time && status != 0) {
    std::fprintf(stderr, "%s failed\n", config.c_str());
    std::exit(1);
  }
  return in_time ? seconds : INFINITY;
}

// Processes that compute until they are killed.
class Burners {
 public:
  explicit Burners(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        volatile unsigned long spun = 0;
        while (true) spun = spun + 1;
      }
      children_.push_back(child);
    }
  }
  ~Burners() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  Burners(const Burners&) = delete;
  Burners& operator=(const Burners&) = delete;

 private:
  std::vector<pid_t> children_;
};

// Prints a row for each way. Also prints the ratio, per round, of tanren's runs to those of the
// best other way, or on an idle machine to those of libgomp's default.
void measure(const Case& chosen, const std::string& folder, int rounds, int burners) {
  const std::string config = chosen.file.empty() ? folder + "/run.toml" : chosen.file;
  if (chosen.file.empty()) std::ofstream(config) << chosen.text;
  const int steps = burners > 0 ? chosen.loaded_steps : chosen.alone_steps;
  const Burners burning(burners);
  std::map<std::string, std::vector<double>> seconds;
  for (int i = 0; i < rounds; ++i) {
    for (const Way& way : kWays) {
      seconds[way.name].push_back(run(config, folder + "/out", steps, way));
    }
  }
  std::string best = kWays.front().name;  // on an idle machine the only reference
  for (const Way& way : kWays) {
    if (burners == 0 || way.variable.empty()) continue;
    const auto median = [&](const std::string& name) {
      return tanren::bench::spread(seconds[name]).median;
    };
    if (median(way.name) < median(best)) best = way.name;
  }
  for (const Way& way : kWays) {
    const Spread spread = tanren::bench::spread(seconds[way.name]);
    std::printf("%-10s %d steps, %s  %-13s %6.2f %6.2f %6.2f s\n", chosen.name.c_str(), steps,
                burners > 0 ? "loaded" : "alone ", way.name, spread.min, spread.median, spread.max);
  }
  std::vector<double> ratios;
  ratios.reserve(static_cast<size_t>(rounds));
  for (int i = 0; i < rounds; ++i) ratios.push_back(seconds["tanren"][i] / seconds[best][i]);
  const Spread ratio = tanren::bench::spread(ratios);
  const double most = burners > 0 ? 1.2 : 1.05;
  std::printf("%-10s tanren / %s: min %.3f median %.3f max %.3f: %s (at most %.2f)\n",
              chosen.name.c_str(), best.c_str(), ratio.min, ratio.median, ratio.max,
              ratio.median <= most ? "kept" : "NOT KEPT", most);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const int burners = argc > 2 ? std::atoi(argv[2]) : 4;
  const std::vector<std::string> asked(argv + std::min(argc, 3), argv + argc);
  const auto folder = std::filesystem::temp_directory_path() / "tanren-busy-bench";
  std::filesystem::create_directories(folder);
  std::printf(
      "%u cores, %d rounds; seconds of whole runs: min, median, max; loaded: beside %d "
      "processes that compute without end\n",
      std::thread::hardware_concurrency(), rounds, burners);
  for (const Case& chosen : cases()) {
    if (!asked.empty() && std::find(asked.begin(), asked.end(), chosen.name) == asked.end()) {
      continue;
    }
    measure(chosen, folder, rounds, 0);
    if (burners > 0) measure(chosen, folder, rounds, burners);
  }
  std::filesystem::remove_all(folder);
  return 0;
}
