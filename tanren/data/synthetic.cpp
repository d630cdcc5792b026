// synthetic: fields by description, values a pure function of (field, sample index, element).
//   "inputs: float[1,8,8] in [-1, 1]"   uniform
//   "labels: int[] in [0, 9]"           uniform, both ends included
// Small sets are made once; larger ones sample by sample, so that any size costs no memory.
#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/data/dataset.h"
#include "tanren/data/text/token_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include <ATen/ATen.h>

namespace tanren {

namespace {

constexpr double kMadeOnceBytes = 64.0 * (1 << 20);
constexpr double kMaxSampleElements = 1e9;

struct Field {
  std::string name;
  bool integer = false;
  std::vector<int64_t> shape;
  int64_t width = 1;  // elements of one sample
  double low = 0, high = 1;
};

// name ":" ("int" | "float") "[" sizes "]" "in" "[" low "," high "]"
class FieldParser {
 public:
  FieldParser(const std::string& text, const std::string& what)
      : text_(text), what_(what), rest_(text) {}

  Field parse() {
    Field field;
    field.name = take(":");
    const auto type = take("[");
    if (field.name.empty() || (type != "int" && type != "float")) fail("is not understood");
    field.integer = type == "int";
    read_shape(take("]"), field);
    if (take("[") != "in") fail("is not understood");
    field.low = number(take(","));
    field.high = number(take("]"));
    if (!trimmed(rest_).empty()) fail("is not understood");

    if (field.low > field.high) fail("has an empty range");
    const double reach = std::max(std::abs(field.low), std::abs(field.high));
    if (field.integer && (field.low != std::floor(field.low) ||
                          field.high != std::floor(field.high) || reach > 0x1p52)) {
      fail("has a range that is not of whole numbers");
    }
    return field;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(
        fmt::format("[{}] field \"{}\" {}; write for example \"inputs: float[1,8,8] in [-1, 1]\"",
                    what_, text_, why));
  }

  // Takes the text before `mark`, and drops `mark`.
  std::string_view take(std::string_view mark) {
    const auto end = rest_.find(mark);
    if (end == std::string_view::npos) fail("is not understood");
    const auto taken = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(end + mark.size());
    return taken;
  }

  void read_shape(std::string_view sizes, Field& field) const {
    double elements = 1;
    while (!sizes.empty()) {
      const auto comma = sizes.find(',');
      const double size = number(trimmed(sizes.substr(0, comma)));
      sizes.remove_prefix(comma == std::string_view::npos ? sizes.size() : comma + 1);
      if (size < 1) fail("has an empty shape");
      if (size != std::floor(size)) fail("has a shape that is not of whole numbers");
      elements *= size;
      if (elements > kMaxSampleElements) fail("has more than a billion elements a sample");
      field.shape.push_back(static_cast<int64_t>(size));
    }
    field.width = static_cast<int64_t>(elements);
  }

  double number(std::string_view text) const {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value)) {
      fail("holds \"" + std::string(text) + "\", which is no number");
    }
    return value;
  }

  const std::string& text_;
  const std::string& what_;
  std::string_view rest_;
};

// Makes sample `index` of field number `stream`. One Philox draw an element.
void fill(const Field& field, uint64_t stream, int64_t index, at::Tensor& values, int64_t row) {
  const auto sample = static_cast<uint64_t>(index);
  if (field.integer) {
    auto* target = values.mutable_data_ptr<int64_t>() + row * field.width;
    const auto span = static_cast<uint64_t>(field.high - field.low) + 1;
    for (int64_t i = 0; i < field.width; ++i) {
      const uint64_t bits = random_bits(sample, stream, static_cast<uint64_t>(i));
      target[i] = static_cast<int64_t>(field.low) + static_cast<int64_t>(bits % span);
    }
    return;
  }
  auto* target = values.mutable_data_ptr<float>() + row * field.width;
  for (int64_t i = 0; i < field.width; ++i) {
    const uint64_t bits = random_bits(sample, stream, static_cast<uint64_t>(i));
    const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
    target[i] = static_cast<float>(field.low + unit * (field.high - field.low));
  }
}

class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(std::vector<Field> fields, DataInfo info, int64_t samples)
      : fields_(std::move(fields)), info_(std::move(info)), samples_(samples) {}
  int64_t size() const override { return samples_; }
  DataInfo info() const override { return info_; }

  Collated collate(const std::vector<int64_t>& indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Collated collated;
    for (size_t i = 0; i < fields_.size(); ++i) {
      auto sizes = fields_[i].shape;
      sizes.insert(sizes.begin(), count);
      at::Tensor values = at::empty(sizes, fields_[i].integer ? at::kLong : at::kFloat);
      for (int64_t row = 0; row < count; ++row) fill(fields_[i], i, indices[row], values, row);
      collated.batch.fields.set(fields_[i].name, std::move(values));
    }
    collated.batch.ids = ids_of(indices);
    collated.counts["samples"] = static_cast<double>(count);
    count_tokens(info_, collated);
    return collated;
  }

  // The classes are those that a TensorDataset of these samples would give.
  SplitKeys split_keys() const override {
    SplitKeys keys = Dataset::split_keys();
    for (size_t i = 0; i < fields_.size(); ++i) {
      const Field& field = fields_[i];
      if (field.name != "labels" || !field.integer || !field.shape.empty()) continue;
      at::Tensor labels = at::empty({samples_}, at::kLong);
      for (int64_t row = 0; row < samples_; ++row) fill(field, i, row, labels, row);
      keys.classes = numbers_of(labels);
    }
    return keys;
  }

 private:
  std::vector<Field> fields_;
  DataInfo info_;
  int64_t samples_;
};

DataInfo info_of(const std::vector<Field>& fields, const std::string& what) {
  DataInfo info;
  for (const auto& field : fields) {
    const auto count = static_cast<int64_t>(field.high) + 1;
    if (field.name == "inputs") info.input_shape = field.shape;
    const bool tokens = field.integer && field.low >= 0 && field.shape.size() == 1;
    if (field.name == "inputs" && tokens) info.vocab_size = count;
    if (field.name == "token_types" && tokens) info.token_types = count;
    if (field.name != "labels") continue;
    info.class_labels = field.integer;
    info.outputs = field.integer ? count : field.width;
    if (field.integer && field.low < 0) {
      throw ConfigError(
          fmt::format("[{}] labels start at {}; classes are 0, 1, …", what, to_text(field.low)));
    }
  }
  return info;
}

}  // namespace

std::unique_ptr<Dataset> open_synthetic(const SourceOptions& options, const std::string& what,
                                        const DataInfo* /*train*/) {
  std::vector<Field> fields;
  double sample_bytes = 0;
  for (const auto& text : options.fields) {
    Field field = FieldParser(text, what).parse();
    for (const auto& other : fields) {
      if (other.name == field.name) {
        throw ConfigError("[" + what + "] field " + field.name + " is given twice; drop one");
      }
    }
    sample_bytes += static_cast<double>(field.width) * (field.integer ? 8 : 4);
    fields.push_back(std::move(field));
  }
  if (fields.empty() || options.samples < 1) {
    throw ConfigError(
        fmt::format("[{}] synthetic data has {} samples of {} fields; set {}.samples and {}.fields",
                    what, options.samples, fields.size(), what, what));
  }
  const DataInfo info = info_of(fields, what);
  auto dataset = std::make_unique<SyntheticDataset>(std::move(fields), info, options.samples);
  if (sample_bytes * static_cast<double>(options.samples) > kMadeOnceBytes) return dataset;
  std::vector<int64_t> all(static_cast<size_t>(options.samples));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<TensorDataset>(dataset->collate(all).batch.fields, info, what);
}

}  // namespace tanren
