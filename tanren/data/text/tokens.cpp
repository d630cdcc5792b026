// tokens: files of token ids, mapped into memory: opening reads a header at most, however large
// they are. Raw ids (nanoGPT's .bin, what `tanren convert --tokenizer` writes), .npy with one
// dimension, or .safetensors with one tensor or one called "tokens".
#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/data/file_list.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/token_windows.h"
#include "tanren/formats/mapped_file.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tanren {

namespace {

// The position of the ids in a file.
struct Layout {
  TokenType type = TokenType::uint16;
  uint64_t offset = 0;  // bytes
  uint64_t count = 0;   // ids
};

struct TypeName {
  const char *ours, *numpy, *safetensors;
  TokenType type;
};
constexpr TypeName kTypes[] = {{"uint8", "|u1", "U8", TokenType::uint8},
                               {"uint16", "<u2", "U16", TokenType::uint16},
                               {"uint32", "<u4", "U32", TokenType::uint32},
                               {"int32", "<i4", "I32", TokenType::int32},
                               {"int64", "<i8", "I64", TokenType::int64}};

const char* name_of(TokenType type) {
  for (const auto& known : kTypes) {
    if (known.type == type) return known.ours;
  }
  return "";
}

template <typename T>
T read_as(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// One file: its bytes, its name for the error texts, and the layout of its ids.
class TokenFile {
 public:
  TokenFile(const std::filesystem::path& path, const SourceOptions& options, int64_t vocab_size,
            const std::string& what)
      : path_(path),
        options_(options),
        vocab_size_(vocab_size),
        what_(what),
        file_(MappedFile::open(path)) {}

  Layout layout() const {
    if (path_.extension() == ".npy") return checked(numpy());
    if (path_.extension() == ".safetensors") return checked(safetensors());
    return raw();
  }

  TokenPiece piece(const Layout& layout, const std::string& name) const {
    return {.name = path_.string(),
            .data = file_->data() + layout.offset,
            .size = static_cast<int64_t>(layout.count),
            .owner = file_,
            .file = {name, static_cast<int64_t>(file_->size())}};
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(fmt::format("[{}] {} {}", what_, path_.string(), problem));
  }

  Layout raw() const {
    Layout layout;
    layout.type = vocab_size_ <= 65536 ? TokenType::uint16 : TokenType::uint32;
    for (const auto& known : kTypes) {
      if (options_.dtype == known.ours) layout.type = known.type;
    }
    const auto width = static_cast<uint64_t>(width_of(layout.type));
    if (file_->size() % width != 0) {
      fail(fmt::format(
          "has {} bytes, no whole number of {} ids; is it cut off, or {}.dtype another?",
          file_->size(), name_of(layout.type), what_));
    }
    layout.count = file_->size() / width;
    return layout;
  }

  // Checks what a .npy or .safetensors header says: the ids are within the file and have the dtype
  // asked for.
  Layout checked(const Layout& layout) const {
    const auto width = static_cast<uint64_t>(width_of(layout.type));
    if (layout.offset > file_->size() || layout.count > (file_->size() - layout.offset) / width) {
      fail(fmt::format("has {} bytes, its header promises {} {} ids; it is cut off: write it again",
                       file_->size(), layout.count, name_of(layout.type)));
    }
    if (options_.dtype != "auto" && options_.dtype != name_of(layout.type)) {
      fail(fmt::format("holds {} by its header, {}.dtype says {}; drop the key",
                       name_of(layout.type), what_, options_.dtype));
    }
    return layout;
  }

  // "\x93NUMPY", version, header length (2 bytes; 4 from version 2 on), a Python dict as text.
  // Format: numpy.lib.format.
  Layout numpy() const {
    const auto bytes = file_->bytes();
    if (bytes.size() < 12 || bytes.substr(0, 6) != "\x93NUMPY") fail("is no .npy file; rename it");
    const bool first_version = bytes[6] == 1;
    const uint64_t begin = first_version ? 10 : 12;
    const uint64_t length =
        first_version ? read_as<uint16_t>(bytes.substr(8)) : read_as<uint32_t>(bytes.substr(8));
    if (length > bytes.size() - begin) fail("ends within its header; write it again");
    const auto header = bytes.substr(begin, length);
    const auto value = [&](std::string_view key, std::string_view open, std::string_view close) {
      const auto at = header.find(key);
      const auto from = at == std::string_view::npos ? at : header.find(open, at + key.size());
      const auto to = from == std::string_view::npos ? from : header.find(close, from + 1);
      if (to == std::string_view::npos) fail("has a header that is not understood; write it again");
      return header.substr(from + 1, to - from - 1);
    };
    Layout layout;
    layout.offset = begin + length;
    layout.type = type_of(value("'descr':", "'", "'"), &TypeName::numpy);
    auto shape = value("'shape':", "(", ")");
    const auto [end, error] =
        std::from_chars(shape.data(), shape.data() + shape.size(), layout.count);
    shape.remove_prefix(static_cast<size_t>(end - shape.data()));
    if (error != std::errc() || (shape != "," && !shape.empty())) {
      fail("has another shape than one dimension; save tokens.ravel()");
    }
    return layout;
  }

  Layout safetensors() const {
    const auto bytes = file_->bytes();
    const uint64_t length = bytes.size() < 8 ? 0 : read_as<uint64_t>(bytes);
    if (bytes.size() < 8 || length > bytes.size() - 8) fail("is no safetensors file, or cut off");
    const auto header = parse_json(bytes.substr(8, length));
    if (!header.is_object()) fail("has a header that is not understood; write it again");
    const nlohmann::json* tensor = nullptr;
    size_t tensors = 0;
    for (const auto& [name, facts] : header.items()) {
      if (name == "__metadata__") continue;
      if (++tensors == 1 || name == "tokens") tensor = &facts;
    }
    if (tensors == 0 || (tensors > 1 && header.count("tokens") == 0)) {
      fail(fmt::format("holds {}, none called tokens; rename one", counted(tensors, "tensor")));
    }
    try {
      Layout layout;
      layout.type = type_of(tensor->at("dtype").get<std::string>(), &TypeName::safetensors);
      const auto shape = tensor->at("shape").get<std::vector<uint64_t>>();
      const auto range = tensor->at("data_offsets").get<std::vector<uint64_t>>();
      if (shape.size() != 1) fail("has tokens of another shape than one dimension; flatten them");
      layout.count = shape.at(0);
      const uint64_t room = bytes.size() - 8 - length;
      if (range.at(0) > room) fail("is cut off; write it again");
      layout.offset = 8 + length + range.at(0);
      return layout;
    } catch (const nlohmann::json::exception&) {
      fail("has a header that is not understood; write it again");
    }
  }

  TokenType type_of(std::string_view name, const char* TypeName::*column) const {
    for (const auto& known : kTypes) {
      if (name == known.*column) return known.type;
    }
    fail("holds values of type " + std::string(name.substr(0, 20)) +
         "; token ids are uint8, uint16, uint32, int32 or int64, little-endian");
  }

  const std::filesystem::path& path_;
  const SourceOptions& options_;
  int64_t vocab_size_;
  const std::string& what_;
  std::shared_ptr<MappedFile> file_;
};

}  // namespace

std::unique_ptr<Dataset> open_tokens(const SourceOptions& options, const std::string& what,
                                     const DataInfo* train) {
  const FileList list = list_files(options, what);
  const SourceTokenizer source(options, train);
  TokenStream stream = source.empty_stream(options, what, train);
  for (size_t i = 0; i < list.files.size(); ++i) {
    const auto& path = list.files[i];
    const TokenFile file(path, options, stream.vocab_size, what);
    const Layout layout = file.layout();
    if (i > 0 && layout.type != stream.type) {
      throw DataError(fmt::format("[{}] {} holds {}, {} {}; the files of one source have one type",
                                  what, path.string(), name_of(layout.type),
                                  list.files.front().string(), name_of(stream.type)));
    }
    stream.type = layout.type;
    stream.pieces.push_back(file.piece(layout, list.names[i]));
  }
  if (list.files.size() == 1) {
    cut_to_part(stream.pieces.front(), list.begin, list.end, width_of(stream.type));
  }
  stream.part = split_part_text(options);
  return std::make_unique<TokenWindows>(std::move(stream), options.context, options.stride, what);
}

}  // namespace tanren
