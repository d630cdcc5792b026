// Loads weights from a file into an existing model: tanren against safetensors.torch.load_file and
// torch.load(mmap=True) with load_state_dict, in turn (peers/files_torch.py). Also measures how
// much memory that adds to the process. TANREN_PEER_PYTHON names a Python with torch and
// safetensors.
//   files_bench [megabytes] [pairs] [threads]
#include "tanren/checkpoint/weights_file.h"
#include "tanren/formats/safetensors.h"
#include "benchmarks/paired.h"
#include "benchmarks/peers/peer_process.h"
#include "benchmarks/resident.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace {

namespace fs = std::filesystem;

// A transformer's shapes: a few large matrices and many small vectors per block.
tanren::TensorMap weights_of(int64_t megabytes) {
  constexpr int64_t kWidth = 1024;
  tanren::TensorMap tensors;
  int64_t left = megabytes * (1 << 20) / 4;
  for (int64_t block = 0; left > 0; ++block) {
    const std::string name = "encoder.layer." + std::to_string(block);
    for (const char* part : {".query", ".key", ".value", ".dense"}) {
      tensors.set(name + part + ".weight", at::randn({kWidth, kWidth}));
      tensors.set(name + part + ".bias", at::randn({kWidth}));
      left -= kWidth * (kWidth + 1);
    }
  }
  return tensors;
}

// How far the peak of the resident set during `work` exceeds its size before.
double growth(const std::function<void()>& work) {
  std::ofstream("/proc/self/clear_refs") << 5;
  const double before = tanren::bench::status_bytes("VmRSS");
  work();
  return tanren::bench::status_bytes("VmHWM") - before;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  if (python == nullptr) {
    std::puts("skipped: TANREN_PEER_PYTHON names no Python with torch and safetensors");
    return 0;
  }
  const int64_t megabytes = argc > 1 ? std::atoll(argv[1]) : 500;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 30;
  const std::string threads = argc > 3 ? argv[3] : "2";
  at::set_num_threads(std::stoi(threads));
  const fs::path folder = fs::temp_directory_path() / "tanren_files_bench";
  fs::create_directories(folder);
  const TensorMap model = weights_of(megabytes);
  std::printf("%lld MB in %zu tensors, %s thread(s), %d pairs\n", static_cast<long long>(megabytes),
              model.size(), threads.c_str(), pairs);
  for (const char* name : {"weights.safetensors", "weights.pt"}) {
    const fs::path file = folder / name;
    write_weights(file, model);
    const auto load = [&] {
      const WeightsFile read = read_weights(file);
      for (const auto& [key, tensor] : model)
        at::Tensor(tensor).copy_(read.content.tensors.at(key));
    };
    load();  // puts the file into the page cache
    const double bytes = static_cast<double>(fs::file_size(file));
    std::printf("%s: peak of the process above the model %.2f of the file\n", name,
                growth(load) / bytes);
    bench::PeerProcess peer(
        {python, TANREN_SOURCE_DIR "/benchmarks/peers/files_torch.py", file.string(), threads});
    const auto own = [&] { return bench::seconds(load); };
    const auto other = [&] { return peer.block(); };
    bench::print("  Python / itself (the A/A spread)", bench::pair_up(pairs, other, other), 1e3,
                 "ms");
    bench::print("  tanren / Python", bench::pair_up(pairs, own, other), 1e3, "ms");
  }
  fs::remove_all(folder);
  return 0;
}
