// Measures 8-bit weights against fp32 and bf16, in turn in one run: linear layers alone,
// predictions of complete models, generation, and bytes. Predictions are also compared with
// Python's runtimes with the same weights (listed in peers/int8_torch.py). TANREN_PEER_PYTHON names
// a Python with torch, transformers, torchvision and safetensors, and, for further peers, with
// torchao, or with onnxruntime, onnx and onnxscript. Run with OMP_WAIT_POLICY=PASSIVE, so that the
// waiting side does not spin.
//   int8_bench [linear|bert|resnet50|generate|bytes|all|small] [pairs] [threads] [peer]
// peer: the only one to measure, by its KIND in peers/int8_torch.py.
// small: all parts with small models and without Python, for a test: exits with 1 if outputs are
// not near those in fp32.
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/int8_bytes.h"
#include "benchmarks/int8_linear.h"
#include "benchmarks/int8_predictions.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // it takes many minutes
  const auto word = bench::words(argc, argv);
  const std::string part = word(1, "all");
  if (part == "load") return bench::load_for_each_line(word(2, ""));
  const std::vector<std::pair<std::string, std::function<void(const bench::Int8Asked&)>>> parts = {
      {"linear", bench::linear_part},
      {"bert", [](const auto& asked) { bench::predictions_part(asked, bench::kBert); }},
      {"resnet50", [](const auto& asked) { bench::predictions_part(asked, bench::kResNet); }},
      {"generate", bench::generate_part},
      {"bytes", bench::bytes_part}};
  bench::Checks checks;
  bench::Int8Asked asked{.is_small = part == "small", .checks = &checks};
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  if (python != nullptr && !asked.is_small) asked.python = python;
  asked.pairs = std::atoi(word(2, asked.is_small ? "1" : "8").c_str());
  asked.threads = std::atoll(word(3, "2").c_str());
  asked.peer = word(4, "");
  install_cpu_allocator();  // as a run does
  at::set_num_threads(static_cast<int>(asked.threads));
  asked.processor = bench::int8_processor();
  bool has_part = false;
  for (const auto& [name, measure] : parts) {
    if (part != name && part != "all" && part != "small") continue;
    has_part = true;
    std::printf("== %s: %s, 8-bit products: %s, %ld thread(s), %d pairs\n", name.c_str(),
                asked.processor.cpu.c_str(), asked.processor.kernels.c_str(), asked.threads,
                asked.pairs);
    measure(asked);
  }
  if (!has_part) {
    std::printf("no part %s; there are linear, bert, resnet50, generate, bytes, all, small\n",
                part.c_str());
    return 2;
  }
  if (asked.python.empty() && !asked.is_small) {
    std::puts("no peers: TANREN_PEER_PYTHON names no Python with torch and transformers");
  }
  return checks.all() ? 0 : 1;
}
