// The loader on small samples: windows of 512 token ids from a mapped file of uint16, and images of
// 3 × 32 × 32 floats held in memory, in batches of 32 and 256. Measures rows per second, and the
// bytes delivered as a share of what memcpy moves on one core, in turn in one run.
//   loader_tokens_bench [pairs]
//   loader_tokens_bench (tokens | images) BATCH WORKERS SECONDS
//                              prints rows per second, for peers/loader_torch.py
#include "tanren/data/loader.h"
#include "benchmarks/paired.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace {

using tanren::bench::seconds;

constexpr int64_t kContext = 512;
constexpr int64_t kTokens = int64_t{1} << 25;
constexpr int64_t kImages = 16384;
constexpr double kBlockSeconds = 0.1;

// A temporary file of 64 MB; the destructor removes it.
class TokenFile {
 public:
  TokenFile() : path_(std::filesystem::temp_directory_path() / "tanren-loader-bench.bin") {
    std::vector<uint16_t> ids(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) ids[i] = static_cast<uint16_t>(i * 2654435761 >> 7);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()), kTokens * 2);
  }
  ~TokenFile() { std::filesystem::remove(path_); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::unique_ptr<tanren::Dataset> open(const std::string& kind, const TokenFile& file) {
  if (kind == "tokens") {
    return tanren::open_dataset(
        {.kind = "tokens", .path = file.path(), .context = kContext, .vocab_size = 65536},
        "data.train");
  }
  tanren::TensorMap fields;
  fields.set("inputs", at::rand({kImages, 3, 32, 32}));
  fields.set("labels", at::randint(10, {kImages}, at::kLong));
  return std::make_unique<tanren::TensorDataset>(
      std::move(fields),
      tanren::DataInfo{.input_shape = {3, 32, 32}, .outputs = 10, .class_labels = true},
      "data.train");
}

// A stream of batches that continues from block to block.
class Stream {
 public:
  Stream(const tanren::Dataset& dataset, int64_t batch, int64_t workers)
      : loader_(dataset, {.global_batch = batch, .keep_last = false, .seed = 1, .workers = workers},
                {}) {}

  // Rows per second of one block, which lasts `block` seconds.
  double rows(double block) {
    int64_t rows = 0;
    const auto start = std::chrono::steady_clock::now();
    double passed = 0;
    while (passed < block) {
      for (int i = 0; i < 16; ++i) {
        const auto batch = loader_.next();
        rows += batch.local.size();
        bytes_ = 0;
        for (const auto& [name, field] : batch.local.fields) {
          bytes_ += static_cast<double>(field.nbytes()) / static_cast<double>(field.size(0));
        }
      }
      passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return static_cast<double>(rows) / passed;
  }
  double bytes_a_row() const { return bytes_; }

 private:
  tanren::Loader loader_;
  double bytes_ = 0;
};

// Bytes per second that memcpy copies between buffers larger than the caches.
class Memcpy {
 public:
  double bytes_a_second() {
    const double time = seconds([&] { std::memcpy(to_.data(), from_.data(), from_.size()); });
    return static_cast<double>(from_.size()) / time;
  }

 private:
  std::vector<char> from_ = std::vector<char>(256 << 20, 1), to_ = from_;
};

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const TokenFile file;
  if (argc == 5) {
    const auto dataset = open(argv[1], file);
    Stream stream(*dataset, std::atoll(argv[2]), std::atoll(argv[3]));
    const double block = std::atof(argv[4]);
    stream.rows(block / 2);
    std::printf("%.0f\n", stream.rows(block));
    return 0;
  }
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 30;
  Memcpy memcpy_of;
  std::printf("%d pairs of a block of %.1f s and a memcpy of 256 MB\n", pairs, kBlockSeconds);
  bool kept = true;
  for (const std::string kind : {"tokens", "images"}) {
    const auto dataset = open(kind, file);
    for (const int64_t batch : {32, 256}) {
      for (const int64_t workers : {0, 1, 2}) {
        Stream stream(*dataset, batch, workers);
        std::vector<double> rows, shares;
        stream.rows(kBlockSeconds);
        memcpy_of.bytes_a_second();
        for (int i = 0; i < pairs; ++i) {
          rows.push_back(stream.rows(kBlockSeconds));
          shares.push_back(rows.back() * stream.bytes_a_row() / memcpy_of.bytes_a_second());
        }
        const auto r = tanren::bench::spread(rows), s = tanren::bench::spread(shares);
        std::printf(
            "%-6s batch %3lld workers %lld  rows/s min %8.0f median %8.0f max %8.0f  "
            "of memcpy min %.2f median %.2f max %.2f\n",
            kind.c_str(), static_cast<long long>(batch), static_cast<long long>(workers), r.min,
            r.median, r.max, s.min, s.median, s.max);
        kept = kept && (kind != "tokens" || s.median >= 0.1);
      }
    }
  }
  std::printf("tokens at a tenth of memcpy or more: %s\n", kept ? "kept" : "NOT KEPT");
}
