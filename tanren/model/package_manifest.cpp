#include "tanren/model/package_manifest.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/model/class_name.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace tanren {

namespace {

using Json = nlohmann::json;

constexpr int64_t kPackageVersion = 1;
constexpr std::array<std::string_view, 10> kDtypes = {"float32", "float64", "float16", "bfloat16",
                                                      "int64",   "int32",   "int16",   "int8",
                                                      "uint8",   "bool"};

// A value of the manifest, with the words that lead to it.
class JsonPart {
 public:
  JsonPart(const Json& json, const std::string& file, std::string place)
      : json_(json), file_(file), place_(std::move(place)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(one_line(fmt::format("[model] {}: {}{}{}; export the package again", file_,
                                           place_, place_.empty() ? "" : " ", what)));
  }

  std::string text() const {
    if (!json_.is_string()) refuse("is no text");
    const auto& text = json_.get_ref<const std::string&>();
    if (text.find('\0') != std::string::npos) refuse("has a byte of 0");
    return text;
  }
  std::string one_of(std::initializer_list<std::string_view> words) const {
    std::string word = text();
    if (std::find(words.begin(), words.end(), word) == words.end()) {
      refuse("is '" + word + "', not one of " + join({words.begin(), words.end()}));
    }
    return word;
  }
  std::string dtype() const {
    std::string word = text();
    if (std::find(kDtypes.begin(), kDtypes.end(), word) == kDtypes.end()) {
      refuse("is '" + word + "', which is no dtype known here");
    }
    return word;
  }
  int64_t number(int64_t least) const {
    const bool fits = json_.is_number_integer() &&
                      (!json_.is_number_unsigned() ||
                       json_.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
    if (!fits || json_.get<int64_t>() < least) {
      refuse(fmt::format("is no whole number of at least {}", least));
    }
    return json_.get<int64_t>();
  }
  double real() const {
    if (!json_.is_number() || !std::isfinite(json_.get<double>())) refuse("is no finite number");
    return json_.get<double>();
  }
  bool flag() const {
    if (!json_.is_boolean()) refuse("is neither true nor false");
    return json_.get<bool>();
  }
  std::optional<int64_t> index(int64_t size) const {
    if (json_.is_null()) return std::nullopt;
    const int64_t value = number(0);
    if (value >= size) refuse(fmt::format("is {}, and the graph has {} outputs", value, size));
    return value;
  }

  std::optional<std::pair<int64_t, int64_t>> bounds() const {
    if (json_.is_null()) return std::nullopt;
    const std::vector<JsonPart> both = list();
    if (both.size() != 2) refuse("are neither null nor two numbers");
    constexpr int64_t kAny = std::numeric_limits<int64_t>::min();
    const std::pair bounds(both[0].number(kAny), both[1].number(kAny));
    if (bounds.first > bounds.second) refuse("begin above their end");
    return bounds;
  }

  bool is_text() const { return json_.is_string(); }
  bool is_null() const { return json_.is_null(); }

  // The elements of a list.
  std::vector<JsonPart> list() const {
    if (!json_.is_array()) refuse("is no list");
    std::vector<JsonPart> values;
    for (size_t i = 0; i < json_.size(); ++i) {
      values.emplace_back(json_[i], file_, fmt::format("{}[{}]", place_, i));
    }
    return values;
  }
  // The keys and values of an object with any keys.
  std::vector<std::pair<std::string, JsonPart>> items() const {
    if (!json_.is_object()) refuse("is no object");
    std::vector<std::pair<std::string, JsonPart>> values;
    for (const auto& [key, value] : json_.items()) {
      values.emplace_back(key, JsonPart(value, file_, under(key)));
    }
    return values;
  }
  // Refuses the value unless it is an object with exactly `keys`.
  void check_keys(std::initializer_list<std::string_view> keys) const {
    if (!json_.is_object()) refuse("is no object");
    for (const auto& [key, value] : json_.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      refuse("has the key '" + key + "', which no manifest of this version has");
    }
    for (const std::string_view key : keys) {
      if (!json_.contains(key)) refuse("lacks the key '" + std::string(key) + "'");
    }
  }
  JsonPart operator[](std::string_view key) const {
    return {json_.at(std::string(key)), file_, under(key)};
  }

 private:
  std::string under(std::string_view key) const {
    return place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
  }

  const Json& json_;
  const std::string& file_;
  std::string place_;
};

std::vector<int64_t> sizes_of(const JsonPart& value) {
  std::vector<int64_t> sizes;
  int64_t elements = 1;
  for (const JsonPart& size : value.list()) {
    sizes.push_back(size.number(0));
    if (__builtin_mul_overflow(elements, std::max<int64_t>(sizes.back(), 1), &elements) ||
        elements > std::numeric_limits<int64_t>::max() / 16) {
      value.refuse("are the sizes of more elements than there is memory");
    }
  }
  return sizes;
}

bool is_identifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

// Names of tensors, which become the names of modules and of what these hold.
class TensorNames {
 public:
  void add(const std::string& name, const JsonPart& place) {
    if (!names_.insert(name).second) place.refuse("is '" + name + "', like another tensor's");
    for (size_t at = 0;;) {
      const size_t end = name.find('.', at);
      if (end == at || name.empty() || at == name.size()) {
        place.refuse("is '" + name + "', which has an empty part");
      }
      if (end == std::string::npos) break;
      modules_.insert(name.substr(0, end));
      at = end + 1;
    }
  }
  // A tensor cannot hold other tensors.
  void check(const JsonPart& place) const {
    for (const std::string& name : names_) {
      if (modules_.count(name) == 0) continue;
      place.refuse("have '" + name + "' as a tensor and as a module");
    }
  }

 private:
  std::set<std::string> names_, modules_;
};

// Ensures that each output of the training graph has only one meaning.
class Outputs {
 public:
  Outputs(int64_t terms, int64_t size) : size_(size) {
    for (int64_t i = 0; i < terms; ++i) taken_.insert(i);
  }
  std::optional<int64_t> take(const JsonPart& value) {
    const auto index = value.index(size_);
    if (index && !taken_.insert(*index).second) {
      value.refuse(fmt::format("is {}, which is another tensor's output", *index));
    }
    return index;
  }
  int64_t taken() const { return std::ssize(taken_); }

 private:
  int64_t size_;
  std::set<int64_t> taken_;
};

void read_files(const JsonPart& root, PackageManifest& manifest) {
  const JsonPart files = root["files"];
  for (const auto& [name, value] : files.items()) {
    if (name != "train.so" && name != "predict.so" && name != "train.json" &&
        name != "predict.json") {
      files.refuse("name '" + name + "', which is no file of a package");
    }
    std::string sum = value.text();
    const bool is_sum =
        sum.size() == 16 && sum.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_sum) value.refuse("is no checksum of 16 hexadecimal digits");
    manifest.files.emplace(name, std::move(sum));
  }
  for (const char* name : {"train.so", "predict.so"}) {
    if (manifest.files.count(name) == 0) files.refuse(std::string("lack ") + name);
  }
}

void read_ranges(const JsonPart& root, PackageManifest& manifest) {
  const JsonPart sizes = root["sizes"];
  for (const auto& [name, value] : sizes.items()) {
    if (!is_identifier(name)) sizes.refuse("name '" + name + "', which is no name");
    value.check_keys({"min", "max", "multiple"});
    PackageManifest::Range range{value["min"].number(1), value["max"].number(1),
                                 value["multiple"].number(1)};
    if (range.max - range.max % range.multiple < range.min) {
      value.refuse(range.min > range.max ? "has min above max" : "has no multiple from min to max");
    }
    manifest.ranges.emplace(name, range);
  }
  if (manifest.ranges.count("batch") == 0) sizes.refuse("lack 'batch'");
}

void check_floating(const JsonPart& dtype, const PackageManifest& manifest) {
  const std::string word = dtype.text();
  if (word.find("float") == std::string::npos || word == manifest.float_dtype()) return;
  dtype.refuse(fmt::format("is {} in a package of precision {}, whose weights are {}", word,
                           manifest.precision, manifest.float_dtype()));
}

void read_tensors(const JsonPart& root, PackageManifest& manifest) {
  TensorNames names;
  Outputs outputs(std::ssize(manifest.terms), manifest.outputs);
  std::set<std::string> parameters;
  for (const JsonPart& value : root["parameters"].list()) {
    value.check_keys({"name", "dtype", "sizes", "gradient", "frozen"});
    const bool is_frozen = value["frozen"].flag();
    if (is_frozen && value["gradient"].index(manifest.outputs)) {
      value.refuse("is frozen and has a gradient");
    }
    PackageManifest::Parameter own{value["name"].text(), value["dtype"].dtype(),
                                   sizes_of(value["sizes"]), outputs.take(value["gradient"]),
                                   is_frozen};
    names.add(own.name, value["name"]);
    if (own.dtype != manifest.float_dtype()) check_floating(value["dtype"], manifest);
    if (own.dtype != manifest.float_dtype()) value["dtype"].refuse("is no floating one");
    parameters.insert(own.name);
    manifest.parameters.push_back(std::move(own));
  }
  if (manifest.parameters.empty()) root["parameters"].refuse("are none");
  for (const auto& [name, value] : root["tied"].items()) {
    names.add(name, root["tied"]);
    const std::string first = value.text();
    if (parameters.count(first) == 0) value.refuse("is '" + first + "', which is no parameter");
    manifest.tied.emplace(name, first);
  }
  for (const JsonPart& value : root["buffers"].list()) {
    value.check_keys({"name", "dtype", "sizes", "output"});
    PackageManifest::Buffer own{value["name"].text(), value["dtype"].dtype(),
                                sizes_of(value["sizes"]), outputs.take(value["output"])};
    names.add(own.name, value["name"]);
    check_floating(value["dtype"], manifest);
    manifest.buffers.push_back(std::move(own));
  }
  names.check(root["parameters"]);
  if (outputs.taken() != manifest.outputs) {
    root["outputs"].refuse(fmt::format("are {}, and {} of them are terms, new buffers or gradients",
                                       manifest.outputs, outputs.taken()));
  }
}

void read_fields(const JsonPart& root, PackageManifest& manifest) {
  std::set<std::string> names;
  for (const JsonPart& value : root["fields"].list()) {
    value.check_keys({"name", "dtype", "sizes", "values", "ignored"});
    PackageManifest::Field field{
        value["name"].text(), value["dtype"].dtype(), {}, value["values"].bounds(), std::nullopt};
    constexpr int64_t kAny = std::numeric_limits<int64_t>::min();
    if (!value["ignored"].is_null()) field.ignored = value["ignored"].number(kAny);
    if (field.values && field.dtype.find("float") != std::string::npos) {
      value["values"].refuse("are bounds of numbers that are no indices");
    }
    if (!names.insert(field.name).second) value["name"].refuse("is another field's too");
    for (const JsonPart& size : value["sizes"].list()) {
      if (!size.is_text()) {
        field.sizes.push_back({.name = "", .number = size.number(0)});
        continue;
      }
      std::string name = size.text();
      if (manifest.ranges.count(name) == 0) {
        size.refuse("is '" + name + "', which is none of the sizes");
      }
      field.sizes.push_back({.name = std::move(name)});
    }
    if (field.sizes.empty() || field.sizes[0].name != "batch") {
      value["sizes"].refuse("do not begin with \"batch\"");
    }
    manifest.fields.push_back(std::move(field));
  }
  if (manifest.fields.empty()) root["fields"].refuse("are none");
  manifest.targets = root["targets"].text();
  if (!manifest.targets.empty() && names.count(manifest.targets) == 0) {
    root["targets"].refuse("is '" + manifest.targets + "', which is no field");
  }
}

void read_terms(const JsonPart& root, PackageManifest& manifest) {
  std::set<std::string> names;
  for (const JsonPart& value : root["terms"].list()) {
    value.check_keys({"name", "weight", "count"});
    PackageManifest::Summed term{value["name"].text(), value["weight"].real(),
                                 value["count"].text()};
    if (!is_identifier(term.name)) value["name"].refuse("is no name");
    // An optimizer would still decay the weights that only this term uses, with gradients of 0.
    if (term.weight == 0) value["weight"].refuse("is 0; export the model without this term");
    if (!names.insert(term.name).second) value["name"].refuse("is another term's too");
    if (!is_identifier(term.count)) value["count"].refuse("is no name of a count");
    manifest.terms.push_back(std::move(term));
  }
  if (manifest.terms.empty()) root["terms"].refuse("are none");
}

void read_words(const JsonPart& root, PackageManifest& manifest) {
  manifest.torch = root["torch"].text();
  manifest.device = root["device"].one_of({"cpu", "cuda"});
  manifest.machine = root["machine"].text();
  for (const JsonPart& flag : root["processor_flags"].list()) {
    manifest.processor_flags.push_back(flag.text());
  }
  manifest.precision = root["precision"].one_of({"fp32", "fp64", "bf16", "fp16"});
  manifest.class_name = root["class"].text();
  if (!is_class_name(manifest.class_name)) root["class"].refuse("is no name of a class");
  manifest.multiply_adds = root["multiply_adds"].number(0);
  manifest.draws = one_line(root["draws"].text());
  manifest.couples_samples = root["couples_samples"].flag();
}

void read_metrics(const JsonPart& root, PackageManifest& manifest) {
  for (const JsonPart& metric : root["metrics"].list()) manifest.metrics.push_back(metric.text());
  manifest.classes = root["classes"].number(0);
  const bool has_scores = !manifest.targets.empty();
  if (!has_scores && (manifest.classes > 0 || !manifest.metrics.empty())) {
    root["targets"].refuse("is empty, so there are no scores for metrics or classes");
  }
}

}  // namespace

PackageManifest parse_package_manifest(std::string_view text, const std::string& file) {
  const Json json = parse_json(text);
  const JsonPart root(json, file, "");
  if (json.is_discarded()) root.refuse("is no JSON");
  if (!json.is_object() || !json.contains("format") || json["format"] != "tanren.package") {
    root.refuse("is no manifest of a package");
  }
  if (!json.contains("version")) root.refuse("lacks the key 'version'");
  const int64_t version = root["version"].number(0);
  if (version != kPackageVersion) {
    throw ConfigError(fmt::format(
        "[model] {}: is of version {}, and this program reads version {}; export the package by "
        "the tanren_export.py that belongs to this program",
        file, version, kPackageVersion));
  }
  root.check_keys({"format",          "version",   "torch", "device",        "machine",
                   "processor_flags", "precision", "class", "multiply_adds", "draws",
                   "couples_samples", "files",     "sizes", "parameters",    "tied",
                   "buffers",         "fields",    "terms", "outputs",       "targets",
                   "metrics",         "classes"});
  PackageManifest manifest;
  read_words(root, manifest);
  read_files(root, manifest);
  read_ranges(root, manifest);
  read_terms(root, manifest);
  manifest.outputs = root["outputs"].number(std::ssize(manifest.terms));
  read_tensors(root, manifest);
  read_fields(root, manifest);
  read_metrics(root, manifest);
  return manifest;
}

}  // namespace tanren
