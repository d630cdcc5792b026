// synthetic: fields by description, values a pure function of (field, sample index, element).
//   "inputs: float[1,8,8] in [-1, 1]"   uniform
//   "labels: int[] in [0, 9]"           uniform, both ends included
#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

#include <regex>

namespace tanren {

namespace {

struct Field {
  std::string name;
  bool integer = false;
  std::vector<int64_t> shape;
  double low = 0, high = 1;
};

Field parse(const std::string& text, const std::string& what) {
  static const std::regex form(
      R"(\s*(\w+)\s*:\s*(int|float)\s*\[([0-9,\s]*)\]\s*in\s*\[\s*([-+.0-9eE]+)\s*,\s*([-+.0-9eE]+)\s*\]\s*)");
  std::smatch match;
  const auto fail = [&](const std::string& why) {
    throw ConfigError("[" + what + "] field \"" + text + "\" " + why +
                      "; write for example \"inputs: float[1,8,8] in [-1, 1]\"");
  };
  if (!std::regex_match(text, match, form)) fail("is not understood");
  Field field{match[1], match[2] == "int", {}, 0, 0};
  std::stringstream sizes(match[3]);
  for (std::string size; std::getline(sizes, size, ',');) {
    try {
      field.shape.push_back(std::stoll(size));
    } catch (const std::exception&) {
      fail("has an unreadable shape");
    }
    if (field.shape.back() <= 0) fail("has an empty shape");
  }
  try {
    field.low = std::stod(match[4]);
    field.high = std::stod(match[5]);
  } catch (const std::exception&) {
    fail("has an unreadable range");
  }
  if (!(field.low <= field.high)) fail("has an empty range");
  if (field.integer && (field.low != std::floor(field.low) || field.high != std::floor(field.high))) {
    fail("has a range that is not of integers");
  }
  return field;
}

at::Tensor generate(const Field& field, uint64_t stream, int64_t samples) {
  auto sizes = field.shape;
  sizes.insert(sizes.begin(), samples);
  at::Tensor values = at::empty(sizes, field.integer ? at::kLong : at::kFloat);
  const int64_t total = values.numel();
  const int64_t width = samples > 0 ? total / samples : 0;
  for (int64_t i = 0; i < total; ++i) {
    // One draw an element: its index within the sample, the sample, the field.
    const uint64_t bits = random_bits(static_cast<uint64_t>(i / width), stream,
                                      static_cast<uint64_t>(i % width));
    if (field.integer) {
      const auto span = static_cast<uint64_t>(field.high - field.low) + 1;
      values.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(field.low) +
                                              static_cast<int64_t>(bits % span);
    } else {
      const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
      values.mutable_data_ptr<float>()[i] =
          static_cast<float>(field.low + unit * (field.high - field.low));
    }
  }
  return values;
}

}  // namespace

std::unique_ptr<Dataset> open_synthetic(const SourceOptions& options, const std::string& what) {
  TensorMap fields;
  DataInfo info;
  uint64_t stream = 0;
  for (const auto& text : options.fields) {
    const Field field = parse(text, what);
    if (fields.contains(field.name)) {
      throw ConfigError("[" + what + "] field " + field.name + " is given twice; drop one");
    }
    fields.set(field.name, generate(field, stream++, options.samples));
    if (field.name == "inputs") info.input_shape = field.shape;
    if (field.name == "labels") {
      info.class_labels = field.integer;
      info.outputs = field.integer ? static_cast<int64_t>(field.high) + 1
                                   : std::max<int64_t>(1, fields.at("labels")[0].numel());
      if (field.integer && field.low < 0) {
        throw ConfigError("[" + what + "] labels start at " + std::to_string(field.low) +
                          "; classes are 0, 1, …");
      }
    }
  }
  return std::make_unique<TensorDataset>(std::move(fields), info, what);
}

}  // namespace tanren
