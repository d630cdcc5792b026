#include "tanren/base/safetensors.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace tanren {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, at::ScalarType>, 11> kTypes = {{
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"U16", at::kUInt16},
}};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& problem) {
  throw DataError("[safetensors] " + path.string() + ": " + problem +
                  "; is it a whole safetensors file?");
}

at::ScalarType dtype_of(const std::string& text, const std::string& name,
                        const std::filesystem::path& path) {
  for (const auto& [key, dtype] : kTypes) {
    if (text == key) return dtype;
  }
  fail(path, "tensor " + name + " has the unknown dtype " + text);
}

// A non-negative JSON integer; the header is not to be trusted.
uint64_t unsigned_of(const Json& json, const std::string& name, const std::filesystem::path& path) {
  if (!json.is_number_unsigned()) fail(path, "tensor " + name + " has a size that is no count");
  return json.get<uint64_t>();
}

struct Entry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

Entry entry_of(const std::string& name, const Json& json, uint64_t available,
               const std::filesystem::path& path) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
      !json.contains("shape") || !json["shape"].is_array() || !json.contains("data_offsets") ||
      !json["data_offsets"].is_array() || json["data_offsets"].size() != 2) {
    fail(path, "tensor " + name + " is not described by dtype, shape and data_offsets");
  }
  Entry entry{name, dtype_of(json["dtype"], name, path), {}};
  uint64_t elements = 1;
  for (const auto& size : json["shape"]) {
    const uint64_t value = unsigned_of(size, name, path);
    if (value != 0 && elements > std::numeric_limits<int64_t>::max() / 8 / value) {
      fail(path, "tensor " + name + " is impossibly large");
    }
    elements *= value;
    entry.shape.push_back(static_cast<int64_t>(value));
  }
  entry.begin = unsigned_of(json["data_offsets"][0], name, path);
  entry.end = unsigned_of(json["data_offsets"][1], name, path);
  if (entry.begin > entry.end || entry.end > available) {
    fail(path, "tensor " + name + " lies outside the file (cut off?)");
  }
  if (entry.end - entry.begin != elements * c10::elementSize(entry.dtype)) {
    fail(path, "tensor " + name + "'s shape does not fit its bytes");
  }
  return entry;
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) fail(path, "is too short");
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > bytes.size() - sizeof header_size) fail(path, "its header is cut off");
  const char* header = bytes.data() + sizeof header_size;
  const Json json = Json::parse(header, header + header_size, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(path, "its header is no JSON object");

  const char* data = header + header_size;
  const uint64_t available = bytes.size() - sizeof header_size - header_size;
  SafetensorsFile file;
  std::vector<std::pair<uint64_t, uint64_t>> used;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) fail(path, "its metadata is no object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) fail(path, "its metadata " + key + " is no text");
        file.metadata[key] = text.get<std::string>();
      }
      continue;
    }
    const Entry entry = entry_of(name, value, available, path);
    if (file.tensors.contains(name)) fail(path, "tensor " + name + " stands in it twice");
    if (entry.end > entry.begin) used.emplace_back(entry.begin, entry.end);
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(entry.dtype));
    std::memcpy(tensor.mutable_data_ptr(), data + entry.begin, entry.end - entry.begin);
    file.tensors.set(name, std::move(tensor));
  }
  std::sort(used.begin(), used.end());
  uint64_t covered = 0;
  for (const auto& [begin, end] : used) {
    if (begin != covered) fail(path, "its tensors overlap or leave gaps");
    covered = end;
  }
  if (covered != available) fail(path, "its data is longer than its tensors");
  return file;
}

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  std::vector<at::Tensor> contiguous;
  for (const auto& [name, tensor] : tensors) {
    const char* dtype = nullptr;
    for (const auto& [key, type] : kTypes) {
      if (tensor.scalar_type() == type) dtype = key;
    }
    if (dtype == nullptr) fail(path, "tensor " + name + " has a dtype that safetensors lacks");
    contiguous.push_back(tensor.detach().to(at::kCPU).contiguous());
    const uint64_t end = offset + static_cast<uint64_t>(contiguous.back().nbytes());
    header[name] = {{"dtype", dtype}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  const uint64_t size = text.size();
  std::string bytes;
  bytes.reserve(sizeof size + text.size() + offset);
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += text;
  for (const auto& tensor : contiguous) {
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  write_file(path, bytes);
}

}  // namespace tanren
