// Converts a state's plain values to JSON and back exactly: integers stay integers, doubles
// round-trip.
#pragma once

#include "tanren/base/state.h"

#include <nlohmann/json.hpp>

namespace tanren {

nlohmann::ordered_json values_to_json(const std::map<std::string, Value>& values);
// CheckpointError for anything that values_to_json does not write.
std::map<std::string, Value> values_from_json(const nlohmann::ordered_json& json);

}  // namespace tanren
