#include "tanren/checkpoint/pt_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"

#include <caffe2/serialize/inline_container.h>
#include <ATen/ATen.h>

#include <cstring>
#include <map>
#include <tuple>

namespace tanren {

namespace {

// The names of torch's typed storages; what has none goes as an untyped one with its dtype.
const char* storage_class(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return "DoubleStorage";
    case at::kFloat: return "FloatStorage";
    case at::kHalf: return "HalfStorage";
    case at::kBFloat16: return "BFloat16Storage";
    case at::kLong: return "LongStorage";
    case at::kInt: return "IntStorage";
    case at::kShort: return "ShortStorage";
    case at::kChar: return "CharStorage";
    case at::kByte: return "ByteStorage";
    case at::kBool: return "BoolStorage";
    case at::kComplexFloat: return "ComplexFloatStorage";
    case at::kComplexDouble: return "ComplexDoubleStorage";
    default: return nullptr;
  }
}

const char* dtype_name(at::ScalarType type, const std::string& name) {
  switch (type) {
    case at::kUInt16: return "uint16";
    case at::kUInt32: return "uint32";
    case at::kUInt64: return "uint64";
    case at::kFloat8_e4m3fn: return "float8_e4m3fn";
    case at::kFloat8_e5m2: return "float8_e5m2";
    default:
      throw CheckpointError("[checkpoint] tensor " + name + " has dtype " + c10::toString(type) +
                            ", which a .pt file cannot hold; convert it first");
  }
}

// Protocol 2: what torch.save writes and its weights_only reader allows.
class Pickler {
 public:
  Pickler() { bytes_ = "\x80\x02"; }

  void raw(std::string_view opcodes) { bytes_ += opcodes; }
  void global(const std::string& module, const std::string& name) {
    bytes_ += "c" + module + "\n" + name + "\n";
  }
  void text(const std::string& text) {
    bytes_ += 'X';
    fixed(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void integer(int64_t value) {
    if (value >= 0 && value < 256) {
      bytes_ += 'K';
      fixed(static_cast<uint8_t>(value));
    } else if (value == static_cast<int32_t>(value)) {
      bytes_ += 'J';
      fixed(static_cast<int32_t>(value));
    } else {
      bytes_ += "\x8a\x08";
      fixed(value);
    }
  }
  void tuple(at::IntArrayRef values) {
    bytes_ += '(';
    for (const auto value : values) integer(value);
    bytes_ += 't';
  }
  void empty_ordered_dict() {
    global("collections", "OrderedDict");
    bytes_ += ")R";
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  void fixed(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string bytes_;
};

void add_tensor(Pickler& pickler, const std::string& name, const at::Tensor& tensor,
                const std::string& key) {
  const auto type = tensor.scalar_type();
  const char* typed = storage_class(type);
  pickler.text(name);
  pickler.global("torch._utils", typed != nullptr ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  pickler.raw("((");
  pickler.text("storage");
  pickler.global(typed != nullptr ? "torch" : "torch.storage",
                 typed != nullptr ? typed : "UntypedStorage");
  pickler.text(key);
  pickler.text("cpu");
  pickler.integer(typed != nullptr ? tensor.numel() : static_cast<int64_t>(tensor.nbytes()));
  pickler.raw("tQ");
  pickler.integer(0);
  pickler.tuple(tensor.sizes());
  pickler.tuple(tensor.strides());
  pickler.raw("\x89");
  pickler.empty_ordered_dict();
  if (typed == nullptr) pickler.global("torch", dtype_name(type, name));
  pickler.raw("tR");
}

}  // namespace

void write_pt(const std::filesystem::path& path, const TensorMap& tensors) {
  Pickler pickler;
  pickler.empty_ordered_dict();
  pickler.raw("(");
  std::vector<at::Tensor> storages;
  std::map<std::tuple<const void*, int64_t, at::ScalarType>, size_t> known;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    const std::tuple id{plain.const_data_ptr(), plain.numel(), plain.scalar_type()};
    const auto [place, is_new] = known.try_emplace(id, storages.size());
    if (is_new) storages.push_back(plain);
    add_tensor(pickler, name, plain, std::to_string(place->second));
  }
  pickler.raw("u.");
  write_file(path, [&](const Write& write) {
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
      write({static_cast<const char*>(data), size});
      return size;
    });
    writer.writeRecord("data.pkl", pickler.bytes().data(), pickler.bytes().size());
    writer.writeRecord("byteorder", "little", 6);
    for (size_t i = 0; i < storages.size(); ++i) {
      writer.writeRecord("data/" + std::to_string(i), storages[i].const_data_ptr(),
                         storages[i].nbytes());
    }
    writer.writeEndOfFile();
  });
}

}  // namespace tanren
