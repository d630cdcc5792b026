#include "tanren/interop/quantize_note.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
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

[[noreturn]] void refuse_note(const std::string& what, const std::string& fault) {
  throw ConfigError("[model] " + what + ": its description has " + fault + " in " + kQuantizeKey +
                    "; write the file again");
}

// A value of the note. Values of a hostile file are never copied or printed.
const Json& note_value(const Json& note, const char* key, const std::string& what) {
  const auto found = note.find(key);
  if (found == note.end()) refuse_note(what, std::string("no ") + key);
  return *found;
}

template <size_t N>
std::string word_of(const Json& note, const char* key, const std::array<std::string_view, N>& words,
                    const std::string& what) {
  const Json& value = note_value(note, key, what);
  const bool is_known =
      value.is_string() &&
      std::find(words.begin(), words.end(), value.get_ref<const std::string&>()) != words.end();
  if (!is_known) refuse_note(what, std::string("an unknown ") + key);
  return value.get<std::string>();
}

// An object of texts, by name.
std::map<std::string, std::string> note_texts(const Json& note, const char* key,
                                              const std::string& what) {
  const Json& value = note_value(note, key, what);
  if (!value.is_object()) refuse_note(what, std::string(key) + " that are no object");
  std::map<std::string, std::string> texts;
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) refuse_note(what, std::string("something that is no text among ") + key);
    texts[name] = text.get<std::string>();
  }
  return texts;
}

WeightReader reader_named(const std::string& word, const std::string& what) {
  for (const WeightReader reader : kReaders) {
    if (name(reader) == word) return reader;
  }
  refuse_note(what, "an unknown operator among readers");
}

}  // namespace

std::string quantize_text(const QuantizeNote& note) {
  Json readers = Json::object(), kept = Json::object();
  for (const auto& [parameter, reader] : note.readers)
    readers[parameter] = std::string(name(reader));
  for (const auto& [parameter, why] : note.kept) kept[parameter] = why;
  return exact_json_text(Json{{"scheme", note.scheme},
                              {"range", note.range},
                              {"samples", note.samples},
                              {"kept", std::move(kept)},
                              {"readers", std::move(readers)}});
}

QuantizeNote quantize_note(const Metadata& metadata, const std::string& what) {
  QuantizeNote note;
  const auto found = metadata.find(kQuantizeKey);
  if (found == metadata.end()) return note;
  const Json json = parse_json(found->second);
  if (!json.is_object()) refuse_note(what, "no JSON object");
  note.scheme = word_of(json, "scheme", kSchemes, what);
  note.range = word_of(json, "range", kRanges, what);
  const Json& samples = note_value(json, "samples", what);
  if (!samples.is_number_integer() || samples.get<int64_t>() < 0 ||
      samples.get<int64_t>() > kMostSamples) {
    refuse_note(what, "no usable samples");
  }
  note.samples = samples.get<int64_t>();
  note.kept = note_texts(json, "kept", what);
  for (const auto& [parameter, word] : note_texts(json, "readers", what)) {
    note.readers[parameter] = reader_named(word, what);
  }
  if (note.empty()) refuse_note(what, "no 8-bit weight");
  return note;
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
