#include "tanren/data/data_part.h"

#include "tanren/base/hash.h"

#include <c10/core/ScalarType.h>

#include <string_view>

namespace tanren {

namespace {

// Hashing this many bytes takes less than a hundredth of any start.
constexpr int64_t kStretch = int64_t{64} << 10, kStretches = 1024;

}  // namespace

DataPart part_of(const std::string& name, const at::Tensor& tensor) {
  Hash64 hash;
  hash.add(c10::toString(tensor.scalar_type()));
  for (const int64_t size : tensor.sizes()) hash.add(size);
  const at::Tensor whole = tensor.contiguous();
  const auto bytes = static_cast<int64_t>(whole.nbytes());
  const auto* data = static_cast<const char*>(whole.const_data_ptr());
  const auto add = [&](int64_t from, int64_t size) {
    hash.add(std::string_view(data + from, static_cast<size_t>(size)));
  };
  if (bytes <= kStretch * kStretches) {
    add(0, bytes);
  } else {
    for (int64_t i = 0; i < kStretches; ++i) {
      const double share = static_cast<double>(i) / (kStretches - 1);
      add(static_cast<int64_t>(share * static_cast<double>(bytes - kStretch)), kStretch);
    }
  }
  return {name, hash.value()};
}

DataPart part_of(const std::string& name, const std::vector<std::string>& texts) {
  Hash64 hash;
  for (const auto& text : texts) hash.add(text);
  return {name, hash.value()};
}

std::vector<DataPart> parts_of(const std::vector<DataFile>& files) {
  Hash64 names, sizes;
  for (const auto& file : files) {
    names.add(file.name);
    sizes.add(file.bytes);
  }
  return {{"file names", names.value()}, {"file sizes", sizes.value()}};
}

}  // namespace tanren
