#include "tanren/checkpoint/weights_file.h"
#include "tanren/formats/pickle.h"
#include "tanren/formats/safetensors.h"
#include "tanren/formats/zip_file.h"
#include "tanren/formats/zip_test_util.h"
#include "tests/fuzz/targets.h"

#include <ATen/ATen.h>

#include <vector>

namespace tanren::fuzz {

namespace {

// Reads every element that the tensors claim to have. The readers promise that all of them together
// are not much larger than the file, so this must neither take long nor need memory.
void touch(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) tensor.clone();
}

// A copy in memory that ends with the last byte, so that the sanitizer sees a read beyond it.
class Exact {
 public:
  explicit Exact(std::string_view bytes) : bytes_(bytes.begin(), bytes.end()) {
    bytes_.shrink_to_fit();
  }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::vector<char> bytes_;
};

bool read_and_touch(const std::filesystem::path& path) {
  return is_read([&] {
    const WeightsFile file = read_weights(path);
    touch(file.content.tensors);
    state_dict_of(file);
  });
}

}  // namespace

bool safetensors(std::string_view bytes) {
  static const Scratch scratch;
  const auto path = scratch.file("a.safetensors", bytes);
  return is_read([&] { touch(read_safetensors(path).tensors); });
}

bool pt(std::string_view bytes) {
  static const Scratch scratch;
  const Exact exact(bytes);
  is_read([&] { zip_entries(exact.view(), "[checkpoint] a.pt"); });
  return read_and_touch(scratch.file("a.pt", bytes));
}

bool pickle(std::string_view bytes) {
  static const Scratch scratch;
  const Exact exact(bytes);
  is_read([&] { read_pickle(exact.view(), "[checkpoint] a.pt"); });
  const std::string storage(64, '\x01');
  return read_and_touch(scratch.file(
      "a.pt",
      testing::zip_of({{"a/data.pkl", bytes}, {"a/data/0", storage}, {"a/data/1", storage}})));
}

bool index(std::string_view bytes) {
  static const Scratch scratch;
  TensorMap tensors;
  tensors.set("a", at::ones({2}));
  write_safetensors(scratch.path() / "b.safetensors", tensors);
  return read_and_touch(scratch.file("a.safetensors.index.json", bytes));
}

}  // namespace tanren::fuzz
