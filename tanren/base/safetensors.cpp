#include "tanren/base/safetensors.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

namespace tanren {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, at::ScalarType>, 15> kTypes = {{
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
    {"U32", at::kUInt32},
    {"U64", at::kUInt64},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
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
  uint64_t extent = 1;
  bool empty = false;
  for (const auto& size : json["shape"]) {
    const uint64_t value = unsigned_of(size, name, path);
    const uint64_t factor = std::max<uint64_t>(value, 1);  // strides count an empty dim as one
    if (extent > std::numeric_limits<int64_t>::max() / 8 / factor) {
      fail(path, "tensor " + name + " is impossibly large");
    }
    extent *= factor;
    empty = empty || value == 0;
    entry.shape.push_back(static_cast<int64_t>(value));
  }
  const uint64_t elements = empty ? 0 : extent;
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

// The header as JSON; the stream stands at the data then, of which `available` bytes follow.
Json read_header(OpenFile& file, uint64_t& available, const std::filesystem::path& path) {
  uint64_t size = 0;
  if (file.size < sizeof size) fail(path, "is too short");
  file.stream.read(reinterpret_cast<char*>(&size), sizeof size);
  if (!file.stream || size > file.size - sizeof size) fail(path, "its header is cut off");
  std::string text(size, '\0');
  file.stream.read(text.data(), static_cast<std::streamsize>(size));
  if (!file.stream) fail(path, "its header is cut off");
  available = file.size - sizeof size - size;

  // A name that comes twice would silently replace the first.
  std::set<std::string> names;
  std::string twice;
  const auto note_names = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key &&
        !names.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json json = Json::parse(text, note_names, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(path, "its header is no JSON object");
  if (!twice.empty()) fail(path, "tensor " + twice + " stands in it twice");
  return json;
}

Metadata metadata_of(const Json& json, const std::filesystem::path& path) {
  if (!json.is_object()) fail(path, "its metadata is no object");
  Metadata metadata;
  for (const auto& [key, text] : json.items()) {
    if (!text.is_string()) fail(path, "its metadata " + key + " is no text");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// The entries, in the order of the header, lie side by side and fill the data.
void check_cover(std::vector<Entry> entries, uint64_t available,
                 const std::filesystem::path& path) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const auto& entry : entries) {
    if (entry.begin != covered) fail(path, "tensor " + entry.name + " overlaps or leaves a gap");
    covered = entry.end;
  }
  if (covered != available) fail(path, "its data is longer than its tensors");
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  OpenFile input = open_file(path);
  uint64_t available = 0;
  const Json header = read_header(input, available, path);
  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      file.metadata = metadata_of(value, path);
    } else {
      entries.push_back(entry_of(name, value, available, path));
    }
  }
  check_cover(entries, available, path);
  const std::streamoff data = input.stream.tellg();
  for (const auto& entry : entries) {
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(entry.dtype));
    if (entry.end > entry.begin) {
      input.stream.seekg(data + static_cast<std::streamoff>(entry.begin));
      input.stream.read(static_cast<char*>(tensor.mutable_data_ptr()),
                        static_cast<std::streamsize>(entry.end - entry.begin));
      if (!input.stream) fail(path, "tensor " + entry.name + " could not be read");
    }
    file.tensors.set(entry.name, std::move(tensor));
  }
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
    if (dtype == nullptr) {
      throw DataError("[safetensors] " + path.string() + ": tensor " + name + " has the dtype " +
                      c10::toString(tensor.scalar_type()) +
                      ", which the format lacks; convert it first");
    }
    contiguous.push_back(tensor.detach().to(at::kCPU).contiguous());
    const uint64_t end = offset + static_cast<uint64_t>(contiguous.back().nbytes());
    header[name] = {
        {"dtype", dtype}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  const uint64_t size = text.size();
  std::vector<std::string_view> pieces{{reinterpret_cast<const char*>(&size), sizeof size}, text};
  for (const auto& tensor : contiguous) {
    pieces.emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  write_file(path, pieces);
}

}  // namespace tanren
