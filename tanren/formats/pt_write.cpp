#include "tanren/base/text.h"
#include "tanren/formats/pt_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/row_of_nan.h"

#include <caffe2/serialize/inline_container.h>
#include <ATen/ATen.h>

#include <cstring>
#include <exception>
#include <map>
#include <tuple>

namespace tanren {

namespace {

// The name of torch's typed storage. Null if there is none: then an untyped storage is written,
// with the dtype beside it.
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

// Writes protocol 2, which torch.save writes too and torch's weights_only reader allows.
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
  void real(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bytes_ += 'G';
    for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
  }
  void truth(bool value) { bytes_ += value ? '\x88' : '\x89'; }
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

// Pickles a document and gathers its tensors' storages; tied tensors share one.
class Document {
 public:
  // Recursive: a checkpoint is nested only four or five deep.
  void add(const PtValue& value, const std::string& path) {
    switch (value.kind) {
      case PtValue::Kind::none: pickler_.raw("N"); return;
      case PtValue::Kind::plain: add_plain(value.plain); return;
      case PtValue::Kind::tensor: add_tensor(path, value.tensor); return;
      case PtValue::Kind::list: pickler_.raw("]"); break;
      case PtValue::Kind::tuple: break;
      case PtValue::Kind::dict: pickler_.raw("}"); break;
    }
    pickler_.raw("(");
    for (const auto& item : value.items) add(item, path);
    const bool is_dict = value.kind == PtValue::Kind::dict;
    pickler_.raw(is_dict ? "u" : value.kind == PtValue::Kind::list ? "e" : "t");
  }

  void add_state_dict(const TensorMap& tensors) {
    pickler_.empty_ordered_dict();
    pickler_.raw("(");
    for (const auto& [name, tensor] : tensors) {
      pickler_.text(name);
      add_tensor(name, tensor);
    }
    pickler_.raw("u");
  }

  void write(const std::filesystem::path& path) {
    pickler_.raw(".");
    write_file(path, [&](const Write& write) {
      // The writer's destructor writes too, and an exception from it would end the process. So the
      // first error is kept and later bytes are dropped.
      std::exception_ptr error;
      caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
        try {
          if (!error) write({static_cast<const char*>(data), size});
        } catch (...) {
          error = std::current_exception();
        }
        return size;
      });
      writer.writeRecord("data.pkl", pickler_.bytes().data(), pickler_.bytes().size());
      writer.writeRecord("byteorder", "little", 6);
      for (size_t i = 0; i < storages_.size() && !error; ++i) {
        writer.writeRecord(fmt::format("data/{}", i), storages_[i].const_data_ptr(),
                           storages_[i].nbytes());
      }
      writer.writeEndOfFile();
      if (error) std::rethrow_exception(error);
    });
  }

 private:
  void add_plain(const Value& value) {
    if (const auto* truth = std::get_if<bool>(&value)) pickler_.truth(*truth);
    if (const auto* integer = std::get_if<int64_t>(&value)) pickler_.integer(*integer);
    if (const auto* real = std::get_if<double>(&value)) pickler_.real(*real);
    if (const auto* text = std::get_if<std::string>(&value)) pickler_.text(*text);
  }

  void add_tensor(const std::string& name, const at::Tensor& tensor) {
    refuse_row_of_nan(name, tensor);
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    const std::tuple id{plain.const_data_ptr(), plain.numel(), plain.scalar_type()};
    const auto [place, is_new] = known_.try_emplace(id, storages_.size());
    if (is_new) storages_.push_back(plain);
    const auto type = plain.scalar_type();
    const char* typed = storage_class(type);
    pickler_.global("torch._utils", typed != nullptr ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    pickler_.raw("((");
    pickler_.text("storage");
    pickler_.global(typed != nullptr ? "torch" : "torch.storage",
                    typed != nullptr ? typed : "UntypedStorage");
    pickler_.text(to_text(place->second));
    pickler_.text("cpu");
    pickler_.integer(typed != nullptr ? plain.numel() : static_cast<int64_t>(plain.nbytes()));
    pickler_.raw("tQ");
    pickler_.integer(0);
    pickler_.tuple(plain.sizes());
    pickler_.tuple(plain.strides());
    pickler_.raw("\x89");
    pickler_.empty_ordered_dict();
    if (typed == nullptr) pickler_.global("torch", dtype_name(type, name));
    pickler_.raw("tR");
  }

  Pickler pickler_;
  std::vector<at::Tensor> storages_;
  std::map<std::tuple<const void*, int64_t, at::ScalarType>, size_t> known_;
};

}  // namespace

void write_pt(const std::filesystem::path& path, const TensorMap& tensors) {
  Document document;
  document.add_state_dict(tensors);
  document.write(path);
}

void write_pt(const std::filesystem::path& path, const PtValue& document) {
  Document file;
  file.add(document, "");
  file.write(path);
}

}  // namespace tanren
