#include "tanren/checkpoint/values_json.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"

#include <cmath>
#include <limits>

namespace tanren {

using Json = nlohmann::ordered_json;

namespace {

// JSON has no non-finite numbers, but a loss or a scale may be one: written as {"double": "nan"}.
constexpr const char* kDouble = "double";

Json non_finite_to_json(double value) {
  return {{kDouble, std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

double non_finite_from_json(const Json& json) {
  if (json.size() == 1 && json.contains(kDouble)) {
    const Json& text = json[kDouble];
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  throw CheckpointError("[checkpoint] state.json holds " + json_text(json) +
                        ", which is no value; the file is damaged");
}

}  // namespace

Json values_to_json(const std::map<std::string, Value>& values) {
  auto json = Json::object();
  for (const auto& [name, value] : values) {
    const auto* number = std::get_if<double>(&value);
    if (number != nullptr && !std::isfinite(*number)) {
      json[name] = non_finite_to_json(*number);
    } else {
      std::visit([&, &key = name](const auto& plain) { json[key] = plain; }, value);
    }
  }
  return json;
}

std::map<std::string, Value> values_from_json(const Json& json) {
  std::map<std::string, Value> values;
  for (const auto& [name, value] : json.items()) {
    const bool too_large =
        value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (value.is_boolean()) {
      values[name] = value.get<bool>();
    } else if (value.is_number_integer() && !too_large) {
      values[name] = value.get<int64_t>();
    } else if (value.is_number_float()) {
      values[name] = value.get<double>();
    } else if (value.is_string()) {
      values[name] = value.get<std::string>();
    } else if (value.is_object()) {
      values[name] = non_finite_from_json(value);
    } else {
      throw CheckpointError("[checkpoint] state.json's value " + name +
                            " is no plain value; the file is damaged");
    }
  }
  return values;
}

}  // namespace tanren
