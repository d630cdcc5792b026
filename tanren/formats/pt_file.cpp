#include "tanren/formats/pt_file.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/formats/mapped_file.h"
#include "tanren/formats/pickle.h"
#include "tanren/formats/pt_storage.h"
#include "tanren/formats/zip_file.h"

#include <ATen/ATen.h>

#include <cstring>
#include <map>
#include <set>

namespace tanren {

namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxVisits = size_t{1} << 21;  // values, and keys that lead to values
constexpr size_t kMaxDimensions = 64;
// A small file can recall a value many times, so the total bytes are limited relative to the file's
// size.
constexpr size_t kMaxTexts = size_t{1} << 26;
constexpr size_t kMaxTensors = size_t{1} << 26, kMaxRepeats = 32;

// The start of files that torch.save wrote before 1.6: the pickle of its magic number.
constexpr std::string_view kLegacyMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                                        15);

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

// Walks the document from its root and gathers tensors, values and opaque records.
class Gatherer {
 public:
  Gatherer(const Pickle& pickle, PtStorages& storages, const std::string& where, size_t file_size)
      : pickle_(pickle), storages_(storages), where_(where), file_size_(file_size) {}

  PtFile gather() {
    PtFile file;
    file.kind = kind_of(pickle_.root);
    visit(pickle_.root, "", 0, file);
    return file;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError(where_ + ": " + one_line(what) +
                          "; save it again as a state_dict, or as safetensors");
  }

  const PickleNode& at(uint32_t index) const { return pickle_.at(index); }
  // The class or function of an object; empty for anything else.
  std::string_view callable(uint32_t index) const {
    const auto& node = at(index);
    if (node.kind != PickleKind::object) return {};
    const auto& target = at(node.items[0]);
    return target.kind == PickleKind::global ? target.text : std::string_view();
  }
  bool is_tensor(uint32_t index) const {
    const auto name = callable(index);
    return starts_with(name, "torch._utils._rebuild_") ||
           starts_with(name, "torch._tensor._rebuild_from_type");
  }
  bool is_mapping(uint32_t index) const {
    return at(index).kind == PickleKind::dict || callable(index) == "collections.OrderedDict" ||
           callable(index) == "collections.defaultdict";
  }

  // Keys and values of a mapping, or of an object's state, in order.
  std::vector<std::pair<uint32_t, uint32_t>> pairs(uint32_t index) {
    std::vector<std::pair<uint32_t, uint32_t>> found;
    const auto& node = at(index);
    count_visits(node.items.size() / 2);
    const size_t first = node.kind == PickleKind::object ? 3 : 0;
    if (node.kind == PickleKind::object && callable(index) == "collections.OrderedDict") {
      // Python 2 wrote the pairs as the argument of the call.
      const auto& arguments = at(node.items[1]);
      if (arguments.kind == PickleKind::tuple && arguments.items.size() == 1) {
        count_visits(at(arguments.items[0]).items.size());
        for (const auto pair : at(arguments.items[0]).items) {
          if (at(pair).items.size() == 2) found.emplace_back(at(pair).items[0], at(pair).items[1]);
        }
      }
    }
    if (node.kind == PickleKind::object && !node.keyed) return found;
    for (size_t i = first; i + 1 < node.items.size(); i += 2) {
      found.emplace_back(node.items[i], node.items[i + 1]);
    }
    return found;
  }

  std::string kind_of(uint32_t root) {
    if (is_mapping(root)) {
      const auto all = pairs(root);
      bool tensors = !all.empty();
      for (const auto& [key, value] : all) tensors = tensors && is_tensor(value);
      return tensors ? "state_dict" : "checkpoint";
    }
    const auto name = callable(root);
    if (starts_with(name, "__torch__.")) return "TorchScript archive";
    if (is_tensor(root)) return "tensor";
    return name.empty() ? "checkpoint" : "module of class " + std::string(name);
  }

  std::string key_text(uint32_t index) const {
    const auto& node = at(index);
    if (node.kind == PickleKind::text) return std::string(node.text);
    if (node.kind == PickleKind::integer) return to_text(node.integer);
    return "?";
  }
  static std::string join(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
  }

  void count_visits(size_t more) {
    visits_ += more;
    if (visits_ > kMaxVisits) fail("it has more than a million values");
  }

  void visit(uint32_t index, const std::string& path, int depth, PtFile& file) {
    if (depth > kMaxDepth) fail("its values are nested more than 64 deep");
    count_visits(1);
    const auto& node = at(index);
    const bool is_text = node.kind == PickleKind::text;
    texts_ += path.size() + (is_text ? node.text.size() : 0);
    if (texts_ > file_size_ + kMaxTexts)
      fail("its names and texts together are far larger than it");
    auto& values = file.content.values;
    switch (node.kind) {
      case PickleKind::boolean: values[path] = node.integer != 0; return;
      case PickleKind::integer: values[path] = node.integer; return;
      case PickleKind::real: values[path] = node.real; return;
      case PickleKind::text: values[path] = std::string(node.text); return;
      case PickleKind::list:
      case PickleKind::tuple:
        for (size_t i = 0; i < node.items.size(); ++i) {
          visit(node.items[i], join(path, to_text(i)), depth + 1, file);
        }
        return;
      case PickleKind::dict: visit_pairs(index, path, depth, file); return;
      case PickleKind::object: visit_object(index, path, depth, file); return;
      default: return;
    }
  }

  void visit_pairs(uint32_t index, const std::string& path, int depth, PtFile& file) {
    for (const auto& [key, value] : pairs(index)) {
      visit(value, join(path, key_text(key)), depth + 1, file);
    }
  }

  void visit_object(uint32_t index, const std::string& path, int depth, PtFile& file) {
    if (is_tensor(index)) {
      at::Tensor tensor = rebuild(index, 0);
      if (!tensor.defined()) return;
      if (!names_.insert(path).second) fail("tensor " + path + " comes twice");
      tensors_ += tensor.nbytes();
      if (tensors_ > kMaxRepeats * file_size_ + kMaxTensors) {
        fail("its tensors repeat their storages many times over");
      }
      file.content.tensors.set(path, std::move(tensor));
      return;
    }
    if (is_mapping(index)) return visit_pairs(index, path, depth, file);
    const auto& node = at(index);
    const auto& state = at(node.items[2]);
    if (node.items[2] == 0 || state.kind != PickleKind::dict) {
      if (node.items.size() > 3) return visit_pairs(index, path, depth, file);
      file.opaque.push_back(path + ": " + std::string(callable(index)));
      return;
    }
    std::map<std::string, uint32_t> fields;
    for (const auto& [key, value] : pairs(node.items[2])) fields[key_text(key)] = value;
    if (fields.count("_modules") == 0) return visit_pairs(node.items[2], path, depth, file);
    visit_module(fields, path, depth, file);
  }

  // A pickled torch.nn.Module: gathers what its state_dict would hold, under the same names.
  void visit_module(const std::map<std::string, uint32_t>& fields, const std::string& path,
                    int depth, PtFile& file) {
    // A module of transformers holds the config that it was made from.
    const auto config = fields.find("config");
    if (path.empty() && config != fields.end() && at(config->second).kind == PickleKind::object) {
      const auto state = at(config->second).items[2];
      if (at(state).kind == PickleKind::dict) visit_pairs(state, "config", depth + 1, file);
    }
    std::set<std::string> transient;
    if (const auto names = fields.find("_non_persistent_buffers_set"); names != fields.end()) {
      for (const auto item : set_items(names->second)) transient.insert(key_text(item));
    }
    for (const char* kind : {"_parameters", "_buffers", "_modules"}) {
      const auto field = fields.find(kind);
      if (field == fields.end()) continue;
      for (const auto& [key, value] : pairs(field->second)) {
        if (kind == std::string_view("_buffers") && transient.count(key_text(key)) > 0) continue;
        visit(value, join(path, key_text(key)), depth + 1, file);
      }
    }
  }

  // The items of a set. Protocol 2 has no opcode for a set: it calls set([…]).
  const std::vector<uint32_t>& set_items(uint32_t index) {
    const auto& node = at(index);
    const auto& arguments = at(node.kind == PickleKind::object ? node.items[1] : index).items;
    const bool called = node.kind == PickleKind::object && !arguments.empty();
    const auto& items = called ? at(arguments[0]).items : arguments;
    count_visits(items.size());
    return items;
  }

  std::vector<int64_t> integers(uint32_t index) const {
    if (callable(index) == "torch.Size") {
      const auto& arguments = at(at(index).items[1]).items;
      if (arguments.size() == 1) index = arguments[0];
    }
    const auto& node = at(index);
    if (node.kind != PickleKind::tuple && node.kind != PickleKind::list)
      fail("a shape is no tuple");
    if (node.items.size() > kMaxDimensions) fail("a tensor has more than 64 dimensions");
    std::vector<int64_t> all;
    for (const auto item : node.items) {
      if (at(item).kind != PickleKind::integer) fail("a shape holds no integers");
      all.push_back(at(item).integer);
    }
    return all;
  }

  // The tensor of a rebuild call; undefined for kinds without data of their own.
  at::Tensor rebuild(uint32_t index, int depth) {
    if (depth > 8) fail("a tensor is wrapped more than 8 times");
    const auto name = callable(index);
    const auto& arguments = at(at(index).items[1]).items;
    const auto need = [&](size_t count) {
      if (arguments.size() < count) fail("a tensor lacks arguments");
    };
    if (name == "torch._utils._rebuild_parameter" ||
        name == "torch._utils._rebuild_parameter_with_state") {
      need(1);
      if (!is_tensor(arguments[0])) fail("a parameter holds no tensor");
      return rebuild(arguments[0], depth + 1);
    }
    if (starts_with(name, "torch._tensor._rebuild_from_type")) {
      need(3);
      const auto& function = at(arguments[0]);
      if (function.kind != PickleKind::global) fail("a tensor has no function");
      return rebuild_as(function.text, at(arguments[2]).items);
    }
    return rebuild_as(name, arguments);
  }

  at::Tensor rebuild_as(std::string_view name, const std::vector<uint32_t>& arguments) {
    const bool typed = name == "torch._utils._rebuild_tensor_v3";
    if (!typed && name != "torch._utils._rebuild_tensor_v2" &&
        name != "torch._utils._rebuild_tensor") {
      fail("a tensor is built by " + std::string(name) + ", which is not read here");
    }
    if (arguments.size() < (typed ? 7u : 4u)) fail("a tensor lacks arguments");
    if (at(arguments[0]).kind != PickleKind::persistent) fail("a tensor has no storage");
    if (at(arguments[1]).kind != PickleKind::integer) fail("a tensor has no offset");
    const at::Tensor storage = storages_.at(pickle_, at(arguments[0]).items[0],
                                            typed ? pickle_.at(arguments[6]).text : "");
    return strided_view(storage, at(arguments[1]).integer, integers(arguments[2]),
                        integers(arguments[3]), where_);
  }

  const Pickle& pickle_;
  PtStorages& storages_;
  const std::string& where_;
  const size_t file_size_;
  size_t visits_ = 0;
  size_t texts_ = 0;    // bytes of names and texts
  size_t tensors_ = 0;  // bytes of all tensors if each were copied
  std::set<std::string> names_;
};

PtFile read_zip(const std::shared_ptr<MappedFile>& mapped, const std::string& where) {
  const auto entries = zip_entries(mapped->bytes(), where);
  std::string root;
  const std::string_view* pickle = nullptr;
  for (const auto& [name, bytes] : entries) {
    const auto slash = name.rfind('/');
    if (slash != std::string::npos && name.substr(slash) == "/data.pkl") {
      root = name.substr(0, slash + 1);
      pickle = &bytes;
    }
  }
  if (pickle == nullptr) {
    throw CheckpointError(where +
                          ": it is a zip archive without data.pkl, so torch.save did not write it"
                          "; name a .pt file");
  }
  const auto order = entries.find(root + "byteorder");
  if (order != entries.end() && order->second != "little") {
    throw CheckpointError(where +
                          ": it was saved on a big-endian machine; save it again on a "
                          "little-endian one");
  }
  const Pickle document = read_pickle(*pickle, where);
  PtStorages storages(mapped, where);
  for (const auto& [name, bytes] : entries) {
    if (starts_with(name, root + "data/")) storages.add(name.substr(root.size() + 5), bytes);
  }
  auto file = Gatherer(document, storages, where, mapped->size()).gather();
  if (entries.count(root + "constants.pkl") > 0) file.kind = "TorchScript archive";
  return file;
}

// The layout: magic number, protocol version, facts of the machine, the object, the list of storage
// keys, then each storage as its number of elements and its bytes.
PtFile read_legacy(const std::shared_ptr<MappedFile>& mapped, const std::string& where) {
  auto rest = mapped->bytes().substr(kLegacyMagic.size());
  const auto next = [&] {
    auto pickle = read_pickle(rest, where);
    rest.remove_prefix(pickle.size);
    return pickle;
  };
  next();
  const Pickle machine = next();
  const auto& facts = machine.at(machine.root).items;
  for (size_t i = 0; i + 1 < facts.size(); i += 2) {
    if (machine.at(facts[i]).text == "little_endian" && machine.at(facts[i + 1]).integer == 0) {
      throw CheckpointError(where +
                            ": it was saved on a big-endian machine; save it again on a "
                            "little-endian one");
    }
  }
  const Pickle document = next();
  const Pickle keys = next();
  PtStorages storages(mapped, where);
  const auto types = storages.legacy_types(document);
  for (const auto key : keys.at(keys.root).items) {
    storages.add_legacy(types, std::string(keys.at(key).text), rest);
  }
  return Gatherer(document, storages, where, mapped->size()).gather();
}

}  // namespace

PtFile read_pt(const std::filesystem::path& path) {
  const auto mapped = MappedFile::open(path);
  const std::string where = "[checkpoint] " + path.string();
  const auto bytes = mapped->bytes();
  if (starts_with(bytes, "PK\x03\x04")) return read_zip(mapped, where);
  if (starts_with(bytes, kLegacyMagic)) return read_legacy(mapped, where);
  throw CheckpointError(where +
                        (bytes.empty() ? ": it is empty" : ": torch.save did not write it") +
                        "; name a .pt, .pth or .bin file");
}

}  // namespace tanren
