#include "tanren/formats/pt_storage.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace tanren {

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw CheckpointError(where + ": " + one_line(what) + "; save or download it again");
}

// `name` is the class of a storage ("torch.FloatStorage") or a dtype ("torch.float32").
at::ScalarType dtype_of(std::string_view name, const std::string& where) {
  static const std::map<std::string_view, at::ScalarType> known = {
      {"DoubleStorage", at::kDouble},
      {"float64", at::kDouble},
      {"FloatStorage", at::kFloat},
      {"float32", at::kFloat},
      {"HalfStorage", at::kHalf},
      {"float16", at::kHalf},
      {"BFloat16Storage", at::kBFloat16},
      {"bfloat16", at::kBFloat16},
      {"LongStorage", at::kLong},
      {"int64", at::kLong},
      {"IntStorage", at::kInt},
      {"int32", at::kInt},
      {"ShortStorage", at::kShort},
      {"int16", at::kShort},
      {"CharStorage", at::kChar},
      {"int8", at::kChar},
      {"ByteStorage", at::kByte},
      {"uint8", at::kByte},
      {"BoolStorage", at::kBool},
      {"bool", at::kBool},
      {"ComplexFloatStorage", at::kComplexFloat},
      {"complex64", at::kComplexFloat},
      {"ComplexDoubleStorage", at::kComplexDouble},
      {"complex128", at::kComplexDouble},
      {"uint16", at::kUInt16},
      {"uint32", at::kUInt32},
      {"uint64", at::kUInt64},
      {"float8_e4m3fn", at::kFloat8_e4m3fn},
      {"float8_e5m2", at::kFloat8_e5m2},
  };
  const auto dot = name.rfind('.');
  const auto found = known.find(dot == std::string_view::npos ? name : name.substr(dot + 1));
  if (found == known.end()) fail(where, "dtype " + std::string(name) + " is not read here");
  return found->second;
}

// A persistent id:
// ("storage", class or name of the class, key, device, number of elements[, view]).
struct StorageId {
  std::string_view type;
  std::string key;
  int64_t numel = 0;
  int64_t view_offset = 0;  // before torch 1.6 a storage may be part of another
  int64_t view_numel = -1;
};

constexpr size_t kLongestKey = 256;

bool parse(const Pickle& pickle, uint32_t index, StorageId& id) {
  const auto& items = pickle.at(index).items;
  if (pickle.at(index).kind != PickleKind::tuple || items.size() < 5) return false;
  const auto& key = pickle.at(items[2]);
  const auto& type = pickle.at(items[1]);
  const auto& numel = pickle.at(items[4]);
  const bool named = type.kind == PickleKind::global || type.kind == PickleKind::text;
  const bool keyed = key.kind == PickleKind::text || key.kind == PickleKind::integer;
  if (pickle.at(items[0]).text != "storage" || !named || !keyed) return false;
  if (numel.kind != PickleKind::integer || numel.integer < 0) return false;
  if (key.text.size() > kLongestKey) return false;
  id.type = type.text;
  id.key = key.kind == PickleKind::text ? std::string(key.text) : to_text(key.integer);
  id.numel = numel.integer;
  if (items.size() > 5 && pickle.at(items[5]).items.size() == 3) {
    const auto& view = pickle.at(items[5]).items;
    id.view_offset = pickle.at(view[1]).integer;
    id.view_numel = pickle.at(view[2]).integer;
  }
  return true;
}

}  // namespace

at::Tensor PtStorages::at(const Pickle& pickle, uint32_t index, std::string_view dtype) {
  StorageId id;
  if (!parse(pickle, index, id)) fail(where_, "the id of a storage is malformed");
  const auto found = bytes_.find(id.key);
  if (found == bytes_.end()) fail(where_, "storage " + id.key + " is missing");
  const bool untyped = id.type.find("UntypedStorage") != std::string_view::npos;
  const auto type = dtype_of(untyped ? dtype : id.type, where_);
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  const auto available = static_cast<int64_t>(found->second.size()) / size;
  const int64_t wanted = untyped ? id.numel / size : id.numel;
  if (wanted > available) {
    fail(where_, fmt::format("storage {} holds {} elements, not {}", id.key, available, wanted));
  }
  if (wanted == 0) return at::empty({0}, type);
  at::Tensor& all = made_[id.key + " " + c10::toString(type)];
  if (!all.defined() || all.numel() < wanted) all = over(id.key, type, wanted);
  if (id.view_numel < 0) return all;
  return strided_view(all, id.view_offset, {id.view_numel}, {1}, where_);
}

at::Tensor PtStorages::over(const std::string& key, at::ScalarType type, int64_t numel) {
  const std::string_view bytes = bytes_[key];
  auto* data = const_cast<char*>(bytes.data());
  // A zip may place its entries anywhere; torch aligns them to 64 bytes.
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(type) == 0) {
    return at::from_blob(
        data, {numel}, [keep = mapped_](void*) {}, at::TensorOptions(type));
  }
  at::Tensor& copy = aligned_[key];  // one copy for all dtypes
  if (!copy.defined()) {
    copy = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    std::memcpy(copy.mutable_data_ptr(), data, bytes.size());
  }
  return at::from_blob(
      copy.mutable_data_ptr(), {numel}, [keep = copy](void*) {}, at::TensorOptions(type));
}

std::map<std::string, at::ScalarType> PtStorages::legacy_types(const Pickle& pickle) const {
  std::map<std::string, at::ScalarType> types;
  for (const auto& node : pickle.nodes) {
    StorageId id;
    if (node.kind != PickleKind::persistent || !parse(pickle, node.items[0], id)) continue;
    if (types.count(id.key) == 0) types.emplace(id.key, dtype_of(id.type, where_));
  }
  return types;
}

void PtStorages::add_legacy(const std::map<std::string, at::ScalarType>& types,
                            const std::string& key, std::string_view& rest) {
  const auto type = types.find(key);
  if (type == types.end()) fail(where_, "storage " + key + " belongs to no tensor");
  int64_t numel = 0;
  if (rest.size() < sizeof numel) fail(where_, "it ends before storage " + key);
  std::memcpy(&numel, rest.data(), sizeof numel);
  rest.remove_prefix(sizeof numel);
  const auto size = c10::elementSize(type->second);
  if (numel < 0 || static_cast<uint64_t>(numel) > rest.size() / size) {
    fail(where_, "it ends within storage " + key);
  }
  const auto bytes = rest.substr(0, static_cast<size_t>(numel) * size);
  rest.remove_prefix(bytes.size());
  if (!bytes_.emplace(key, bytes).second) fail(where_, "storage " + key + " comes twice");
}

at::Tensor strided_view(const at::Tensor& storage, int64_t offset,
                        const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                        const std::string& where) {
  if (offset < 0 || sizes.size() != strides.size() || sizes.size() > 64) {
    fail(where, "the shape of a tensor is malformed");
  }
  int64_t last = offset;  // index of the last element that the view touches
  bool empty = false;
  double numel = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || strides[i] < 0) fail(where, "a tensor has a negative size or stride");
    empty = empty || sizes[i] == 0;
    numel *= static_cast<double>(std::max<int64_t>(sizes[i], 1));
  }
  // An expanded tensor (stride 0) may be larger than its storage, but only up to 4 million
  // elements, so that a copy of it stays small.
  constexpr double kMaxExpanded = 1 << 22;
  if (numel > std::max(static_cast<double>(storage.numel()), kMaxExpanded)) {
    fail(where, "a tensor is larger than its storage");
  }
  for (size_t i = 0; i < sizes.size() && !empty; ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      fail(where, "the shape of a tensor is absurd");
    }
  }
  if (empty) return at::empty(sizes, storage.options());
  if (last >= storage.numel()) {
    fail(where,
         fmt::format("a tensor reaches element {} of a storage of {}", last, storage.numel()));
  }
  return storage.as_strided(sizes, strides, storage.storage_offset() + offset);
}

}  // namespace tanren
