#include "tanren/interop/quantize_note.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace tanren {

namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 3> kSchemes = {"weights", "dynamic", "static"};
constexpr std::array<std::string_view, 3> kRanges = {"", "mse", "minmax"};
constexpr std::array kReaders = {WeightReader::linear, WeightReader::projection,
                                 WeightReader::convolution, WeightReader::embedding};
constexpr int64_t kMostSamples = int64_t{1} << 40;

// The limit for each of `kept` and `readers`: more than any model has.
constexpr size_t kMostNamed = size_t{1} << 17;

template <size_t N>
bool is_among(const std::array<std::string_view, N>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The note's first fault; no value if it has none.
std::optional<std::string> fault_of_note(const QuantizeNote& note) {
  if (!is_among(kSchemes, note.scheme)) return "an unknown scheme";
  if (!is_among(kRanges, note.range)) return "an unknown range";
  if (note.samples < 0 || note.samples > kMostSamples) return "no usable samples";
  if (std::max(note.kept.size(), note.readers.size()) > kMostNamed) return "too many names";
  if (note.empty()) return "no 8-bit weight";
  return std::nullopt;
}

// Takes the note's parts while it is parsed and refuses the first wrong one, so that a hostile text
// never becomes a document of many times its size. Values are never printed.
class NoteReader : public Json::json_sax_t {
 public:
  explicit NoteReader(const std::string& what) : what_(what) {}

  QuantizeNote note_of(const std::string& text) {
    if (!Json::sax_parse(text, this)) refuse("no JSON object");
    for (const char* key : {"scheme", "range", "samples", "kept", "readers"}) {
      if (seen_.count(key) == 0) refuse(std::string("no ") + key);
    }
    if (const auto fault = fault_of_note(note_)) refuse(*fault);
    return std::move(note_);
  }

  bool start_object(size_t) override {
    if (depth_ > 0 && (depth_ > 1 || !has_names())) refuse_value();
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 2) {
      parameter_ = name;
      return true;
    }
    key_ = name;
    if (is_known()) seen_.insert(name);
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2) {
      take_name(text);
    } else if (depth_ == 1 && key_ == "scheme") {
      if (!is_among(kSchemes, text)) refuse_value();
      note_.scheme = text;
    } else if (depth_ == 1 && key_ == "range") {
      if (!is_among(kRanges, text)) refuse_value();
      note_.range = text;
    } else {
      return scalar();
    }
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (depth_ != 1 || key_ != "samples") return scalar();
    if (value > static_cast<uint64_t>(kMostSamples)) refuse_value();
    note_.samples = static_cast<int64_t>(value);
    return true;
  }
  bool start_array(size_t) override { refuse_value(); }
  bool end_array() override { return true; }
  bool number_integer(int64_t) override { return scalar(); }
  bool number_float(double, const std::string&) override { return scalar(); }
  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool binary(Json::binary_t&) override { return scalar(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool has_names() const { return key_ == "kept" || key_ == "readers"; }
  bool is_known() const {
    return has_names() || key_ == "scheme" || key_ == "range" || key_ == "samples";
  }

  void take_name(const std::string& text) {
    if (key_ == "kept") {
      note_.kept[parameter_] = text;
    } else {
      const auto reader = std::find_if(kReaders.begin(), kReaders.end(),
                                       [&](WeightReader of) { return name(of) == text; });
      if (reader == kReaders.end()) refuse("an unknown operator among readers");
      note_.readers[parameter_] = *reader;
    }
    if (std::max(note_.kept.size(), note_.readers.size()) > kMostNamed) refuse("too many names");
  }

  // Refuses a value of the wrong type for its key. A number or a text under an unknown key is
  // ignored.
  bool scalar() {
    if (depth_ != 1 || is_known()) refuse_value();
    return true;
  }
  [[noreturn]] void refuse_value() const {
    if (depth_ == 0) refuse("no JSON object");
    if (depth_ == 2) refuse("something that is no text among " + key_);
    if (has_names()) refuse(key_ + " that are no object");
    if (key_ == "samples") refuse("no usable samples");
    refuse(is_known() ? "an unknown " + key_ : "a list or an object that it does not know");
  }
  [[noreturn]] void refuse(const std::string& fault) const {
    throw ConfigError("[model] " + what_ + ": its description has " + fault + " in " +
                      kQuantizeKey + "; write the file again");
  }

  const std::string& what_;
  QuantizeNote note_;
  std::set<std::string> seen_;
  std::string key_, parameter_;
  int depth_ = 0;
};

}  // namespace

void check_version(const Metadata& metadata, const std::string& file) {
  const auto found = metadata.find(kVersionKey);
  if (found == metadata.end()) return;
  const std::string& version = found->second;
  if (version != kFloatingVersion && version != kQuantizedVersion) {
    throw ConfigError(
        fmt::format("[model] {} has version {} of the description, we read {} and "
                    "{}; use the tanren that wrote it",
                    file, one_line(version.substr(0, 20)), kFloatingVersion, kQuantizedVersion));
  }
  const bool is_quantized = metadata.count(kQuantizeKey) > 0;
  if (is_quantized == (version == kQuantizedVersion)) return;
  throw ConfigError(
      fmt::format("[model] {}: its description has version {} {} {}; export the model again", file,
                  version, is_quantized ? "and" : "without", kQuantizeKey));
}

std::string quantize_text(const QuantizeNote& note) {
  if (const auto fault = fault_of_note(note)) {
    throw InputError("[quantize] the note of the 8-bit weights has " + *fault +
                     "; give a scheme "
                     "(weights, dynamic, static), a range (mse, minmax or none) and a count");
  }
  Json readers = Json::object(), kept = Json::object();
  for (const auto& [parameter, reader] : note.readers)
    readers[parameter] = std::string(name(reader));
  // For people alone: an operator's name may be any bytes.
  for (const auto& [parameter, why] : note.kept) kept[utf8_text(parameter)] = utf8_text(why);
  return exact_json_text(Json{{"scheme", note.scheme},
                              {"range", note.range},
                              {"samples", note.samples},
                              {"kept", std::move(kept)},
                              {"readers", std::move(readers)}});
}

QuantizeNote quantize_note(const Metadata& metadata, const std::string& what) {
  const auto found = metadata.find(kQuantizeKey);
  return found == metadata.end() ? QuantizeNote() : NoteReader(what).note_of(found->second);
}

std::string quantize_line(const QuantizeNote& note) {
  std::map<std::string_view, int64_t> counts;
  for (const auto& [parameter, reader] : note.readers) ++counts[name(reader)];
  std::string by_reader;
  for (const auto& [reader, count] : counts) {
    by_reader += fmt::format("{}{} {}", by_reader.empty() ? "" : ", ", count, reader);
  }
  std::string how;
  if (!note.range.empty()) how = "range " + note.range;
  if (note.samples > 0) how += fmt::format("{}{} samples", how.empty() ? "" : ", ", note.samples);
  if (!how.empty()) how = " (" + how + ")";
  std::string line = fmt::format("scheme {}{}: {} weights in 8 bits ({})", note.scheme, how,
                                 note.readers.size(), by_reader);
  if (!note.kept.empty()) line += fmt::format(", {} stay", note.kept.size());
  return line;
}

}  // namespace tanren
