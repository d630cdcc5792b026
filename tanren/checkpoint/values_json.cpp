#include "tanren/checkpoint/values_json.h"

#include "tanren/base/error.h"

namespace tanren {

nlohmann::ordered_json values_to_json(const std::map<std::string, Value>& values) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) {
    std::visit([&, &key = name](const auto& plain) { json[key] = plain; }, value);
  }
  return json;
}

std::map<std::string, Value> values_from_json(const nlohmann::ordered_json& json) {
  std::map<std::string, Value> values;
  for (const auto& [name, value] : json.items()) {
    if (value.is_boolean()) {
      values[name] = value.get<bool>();
    } else if (value.is_number_integer()) {
      values[name] = value.get<int64_t>();
    } else if (value.is_number_float()) {
      values[name] = value.get<double>();
    } else if (value.is_string()) {
      values[name] = value.get<std::string>();
    } else {
      throw CheckpointError("[checkpoint] state.json's value " + name +
                            " is no plain value; the file is damaged");
    }
  }
  return values;
}

}  // namespace tanren
