#include "tanren/formats/safetensors.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/row_of_nan.h"
#include "tanren/base/text.h"
#include "tanren/formats/mapped_file.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

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
  throw DataError("[safetensors] " + path.string() + ": " + one_line(problem) +
                  "; is it a whole safetensors file?");
}

struct Entry {
  std::string name;
  std::optional<at::ScalarType> dtype;
  std::vector<int64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_shape = false;

  uint64_t begin() const { return offsets[0]; }
  uint64_t end() const { return offsets[1]; }
};

// Takes the header's parts while they are parsed and refuses the first wrong one, so that a hostile
// header never becomes a document of many times its size.
class HeaderReader : public Json::json_sax_t {
 public:
  HeaderReader(const std::filesystem::path& path, std::vector<Entry>& entries, Metadata& metadata)
      : path_(path), entries_(entries), metadata_(metadata) {}

  bool start_object(size_t) override {
    if (depth_ == 1 && !in_metadata_) entries_.push_back({key_, {}, {}, {}});
    if (depth_ >= 2) refuse();
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !in_metadata_) {
      const auto& entry = entries_.back();
      if (!entry.dtype || !entry.has_shape || entry.offsets.size() != 2) undescribed(entry.name);
    }
    in_metadata_ = false;
    return true;
  }
  bool key(std::string& name) override {
    key_ = name;
    if (depth_ != 1) return true;
    in_metadata_ = name == "__metadata__";
    if (in_metadata_ && had_metadata_) fail(path_, "its metadata stands in it twice");
    had_metadata_ = had_metadata_ || in_metadata_;
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ != 2 || numbers_) refuse();
    if (in_metadata_) {
      metadata_[key_] = text;
    } else if (key_ == "dtype") {
      entries_.back().dtype = dtype_of(text);
    } else {
      refuse();
    }
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ == 0) fail(path_, "its header is no JSON object");
    if (depth_ != 2 || in_metadata_ || numbers_) refuse();
    is_shape_ = key_ == "shape";
    if (!is_shape_ && key_ != "data_offsets") refuse();
    numbers_ = true;
    if (is_shape_) {
      entries_.back().has_shape = true;
      entries_.back().shape.clear();
    } else {
      entries_.back().offsets.clear();
    }
    return true;
  }
  bool end_array() override {
    numbers_ = false;
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (!numbers_) refuse();
    auto& entry = entries_.back();
    if (is_shape_) {
      if (entry.shape.size() == kMaxDimensions) {
        fail(path_, "tensor " + entry.name + " has more than 64 dimensions");
      }
      if (value > std::numeric_limits<int64_t>::max()) impossible(entry);
      entry.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (entry.offsets.size() == 2) refuse();
      entry.offsets.push_back(value);
    }
    return true;
  }
  bool number_integer(int64_t) override { return no_count(); }
  bool number_float(double, const std::string&) override { return no_count(); }
  bool null() override { return refuse(); }
  bool boolean(bool) override { return refuse(); }
  bool binary(Json::binary_t&) override { return refuse(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

  [[noreturn]] void impossible(const Entry& entry) const {
    fail(path_, "tensor " + entry.name + " is impossibly large");
  }
  [[noreturn]] void undescribed(const std::string& name) const {
    fail(path_, "tensor " + name + " is not described by dtype, shape and data_offsets");
  }

 private:
  static constexpr size_t kMaxDimensions = 64;

  bool refuse() const {
    if (depth_ == 0) fail(path_, "its header is no JSON object");
    if (in_metadata_) fail(path_, "its metadata is no object of texts (" + key_ + ")");
    undescribed(depth_ == 1 ? key_ : entries_.back().name);
  }
  bool no_count() const {
    if (!numbers_) refuse();
    fail(path_, "tensor " + entries_.back().name + " has a size that is no count");
  }
  at::ScalarType dtype_of(const std::string& text) const {
    for (const auto& [key, dtype] : kTypes) {
      if (text == key) return dtype;
    }
    fail(path_, "tensor " + entries_.back().name + " has the unknown dtype " + text);
  }

  const std::filesystem::path& path_;
  std::vector<Entry>& entries_;
  Metadata& metadata_;
  std::string key_;
  int depth_ = 0;
  bool in_metadata_ = false, had_metadata_ = false;
  bool numbers_ = false;
  bool is_shape_ = false;
};

// Checks that the tensor's bytes are inside the file and that their number fits its shape and
// dtype.
void check_entry(const Entry& entry, const HeaderReader& reader, uint64_t available,
                 const std::filesystem::path& path) {
  uint64_t extent = 1;
  bool empty = false;
  for (const int64_t size : entry.shape) {
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(size, 1));  // for strides, 0 is 1
    if (extent > std::numeric_limits<int64_t>::max() / 8 / factor) reader.impossible(entry);
    extent *= factor;
    empty = empty || size == 0;
  }
  const uint64_t elements = empty ? 0 : extent;
  if (entry.begin() > entry.end() || entry.end() > available) {
    fail(path, "tensor " + entry.name + " lies outside the file (cut off?)");
  }
  if (entry.end() - entry.begin() != elements * c10::elementSize(*entry.dtype)) {
    fail(path, "tensor " + entry.name + "'s shape does not fit its bytes");
  }
}

// Refuses a name that comes twice: the second tensor would silently replace the first.
void check_names(const std::vector<Entry>& entries, const std::filesystem::path& path) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const auto& entry : entries) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(path, "tensor " + std::string(*twice) + " stands in it twice");
}

// The tensors of the header, in its order. The data follow the header; their size is put in
// `available`.
std::vector<Entry> read_header(std::string_view file, Metadata& metadata, uint64_t& available,
                               const std::filesystem::path& path) {
  uint64_t size = 0;
  if (file.size() < sizeof size) fail(path, "is too short");
  std::memcpy(&size, file.data(), sizeof size);
  if (size > file.size() - sizeof size) fail(path, "its header is cut off");
  const std::string_view text = file.substr(sizeof size, size);
  available = file.size() - sizeof size - size;

  std::vector<Entry> entries;
  HeaderReader reader(path, entries, metadata);
  if (!Json::sax_parse(text, &reader)) fail(path, "its header is no JSON object");
  for (const auto& entry : entries) check_entry(entry, reader, available, path);
  check_names(entries, path);
  return entries;
}

// Checks that the entries, sorted by offset, fill the data without gaps or overlaps.
void check_cover(const std::vector<Entry>& entries, uint64_t available,
                 const std::filesystem::path& path) {
  std::vector<const Entry*> by_place;
  by_place.reserve(entries.size());
  for (const auto& entry : entries) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(),
            [](const Entry* a, const Entry* b) { return a->offsets < b->offsets; });
  uint64_t covered = 0;
  for (const auto* entry : by_place) {
    if (entry->begin() != covered)
      fail(path, "tensor " + entry->name + " overlaps or leaves a gap");
    covered = entry->end();
  }
  if (covered != available) fail(path, "its data is longer than its tensors");
}

// The entry's elements as a view of the file, or as a copy if they are not aligned for their dtype.
at::Tensor tensor_of(const Entry& entry, const std::shared_ptr<MappedFile>& file, char* data) {
  const auto options = at::TensorOptions(*entry.dtype);
  const uint64_t bytes = entry.end() - entry.begin();
  if (bytes == 0) return at::empty(entry.shape, options);
  char* first = data + entry.begin();
  if (reinterpret_cast<uintptr_t>(first) % c10::elementSize(*entry.dtype) == 0) {
    return at::from_blob(
        first, entry.shape, [file](void*) {}, options);
  }
  at::Tensor tensor = at::empty(entry.shape, options);
  std::memcpy(tensor.mutable_data_ptr(), first, bytes);
  return tensor;
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  const auto mapped = MappedFile::open(path);
  uint64_t available = 0;
  SafetensorsFile file;
  const auto entries = read_header(mapped->bytes(), file.metadata, available, path);
  check_cover(entries, available, path);
  char* data = mapped->data() + (mapped->size() - available);
  for (const auto& entry : entries) file.tensors.set(entry.name, tensor_of(entry, mapped, data));
  return file;
}

namespace {

bool is_widened(const at::Tensor& tensor, Narrow narrow) {
  return narrow == Narrow::widened && tensor.is_floating_point() && tensor.element_size() < 4;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const Metadata& metadata, Narrow narrow) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  std::vector<at::Tensor> all;
  for (const auto& [name, tensor] : tensors) {
    refuse_row_of_nan(name, tensor);
    const at::ScalarType stored = is_widened(tensor, narrow) ? at::kFloat : tensor.scalar_type();
    const char* dtype = nullptr;
    for (const auto& [key, type] : kTypes) {
      if (stored == type) dtype = key;
    }
    if (dtype == nullptr) {
      throw DataError(fmt::format(
          "[safetensors] {}: tensor {} has the dtype {}, which the format lacks; convert it first",
          path.string(), name, c10::toString(tensor.scalar_type())));
    }
    all.push_back(tensor);
    const auto bytes = static_cast<uint64_t>(tensor.numel()) * c10::elementSize(stored);
    header[name] = {{"dtype", dtype},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = exact_json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  const uint64_t size = text.size();
  const std::vector<at::Tensor> contiguous = host_copies(all);
  write_file(path, [&](const Write& write) {
    write({reinterpret_cast<const char*>(&size), sizeof size});
    write(text);
    for (const auto& tensor : contiguous) {
      const at::Tensor wide = is_widened(tensor, narrow) ? tensor.to(at::kFloat) : tensor;
      write({static_cast<const char*>(wide.const_data_ptr()), wide.nbytes()});
    }
  });
}

}  // namespace tanren
