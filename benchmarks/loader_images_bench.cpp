// tanren's loader against torch.utils.data.DataLoader, an epoch each in turn:
// - JPEG files → 224 × 224 random resized crops, flipped and normalised
// - pairs of JPEG files → 256 × 256 crops of 286, bicubic, flipped, in [-1, 1]
// - 32 × 32 colour images in memory, shuffled
//   loader_images_bench [FOLDER [workers [pairs]]]
// FOLDER holds class folders of JPEGs (tests/fixtures/make/photo_folders.py --width 500 --height
// 375), or inputs/ and targets/. The peer needs TANREN_PEER_PYTHON, which names a Python that has
// torch and torchvision.
#include "tanren/data/dataset.h"
#include "tanren/data/loader.h"
#include "benchmarks/paired.h"
#include "benchmarks/peers/peer_process.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

namespace tanren {

namespace {

constexpr int64_t kImages = 20000;  // in memory: 245 MB

// Seconds that a new loader takes for one epoch.
double epoch_seconds(const Dataset& data, int64_t workers, int64_t batch, uint64_t seed) {
  return bench::seconds([&] {
    Loader loader(data, {.global_batch = batch, .seed = seed, .workers = workers}, {});
    for (int64_t seen = 0; seen < data.size();) seen += loader.next().local.size();
  });
}

void compare(const std::string& what, const Dataset& data, int64_t workers, int64_t batch,
             int pairs, const std::vector<std::string>& peer_words) {
  uint64_t seed = 0;
  const auto ours = [&] { return epoch_seconds(data, workers, batch, ++seed); };
  const auto images = static_cast<double>(data.size());
  const auto same = bench::pair_up(pairs, ours, ours);
  std::printf("%s, %d workers: %.0f images/s\n", what.c_str(), static_cast<int>(workers),
              images / same.b.median);
  bench::print("  itself (A/A spread)", same, 1e3, "ms");
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  if (python == nullptr) return;
  const std::string script = TANREN_SOURCE_DIR "/benchmarks/peers/loader_images_torch.py";
  std::vector<std::string> command = {python, "-P",
                                      script};  // -P: no module from the script's folder
  command.insert(command.end(), peer_words.begin(), peer_words.end());
  bench::PeerProcess peer(command);
  const auto against = bench::pair_up(
      pairs, [&] { return peer.block(); }, ours);
  bench::print("  " + peer_words[0] + ", " + peer_words[2] + " workers / tanren", against, 1e3,
               "ms");
}

}  // namespace

void bench_jpeg(const std::string& folder, int64_t workers, int pairs) {
  SourceOptions options;
  options.kind = "images";
  options.path = folder;
  options.size = {224};
  options.crop = "random";
  options.flip = 0.5;
  options.mean = {0.485, 0.456, 0.406};
  options.std = {0.229, 0.224, 0.225};
  const auto data = open_dataset(options, "data.train");
  const auto count = std::to_string(workers);
  compare("JPEG to 224 × 224", *data, workers, 32, pairs, {"jpeg", folder, count, "32"});
}

void bench_pairs(const std::string& folder, int64_t workers, int pairs) {
  SourceOptions options;
  options.kind = "pairs";
  options.path = folder;
  options.size = {256};
  options.crop = "shift";
  options.resize = 286;
  options.flip = 0.5;
  options.filter = "bicubic";
  const auto data = open_dataset(options, "data.train");
  const auto count = std::to_string(workers);
  compare("pairs of JPEGs to 256 × 256", *data, workers, 8, pairs, {"pairs", folder, count, "8"});
}

void bench_memory(int64_t workers, int pairs) {
  TensorMap fields;
  fields.set("inputs", at::rand({kImages, 3, 32, 32}));
  fields.set("labels", at::arange(kImages, at::kLong).remainder(10));
  const TensorDataset data(std::move(fields), {}, "memory");
  const auto images = std::to_string(kImages);
  for (const int64_t threads : {workers, int64_t{0}}) {
    compare("32 × 32 in memory", data, threads, 128, pairs,
            {"memory", images, std::to_string(threads), "128"});
  }
  compare("32 × 32 in memory", data, workers, 128, pairs, {"sliced", images, "0", "128"});
}

}  // namespace tanren

int main(int argc, char** argv) {
  const int64_t workers = argc > 2 ? std::atoi(argv[2]) : 2;
  const int pairs = argc > 3 ? std::atoi(argv[3]) : 30;
  try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "";
    if (std::filesystem::is_directory(folder / "inputs")) {
      tanren::bench_pairs(folder.string(), workers, pairs);
      return 0;
    }
    if (argc > 1) tanren::bench_jpeg(folder.string(), workers, pairs);
    tanren::bench_memory(workers, pairs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
