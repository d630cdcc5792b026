// A table's encoding as JSON, as a whole model keeps it. Called by whole_model.
#pragma once

#include "tanren/base/table_encoding.h"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tanren {

nlohmann::json table_json(const TableEncoding& table);

// Reads the JSON back. Its columns must have these names and give `inputs` inputs in total. The
// JSON is untrusted: if table_json cannot have written it, returns null and sets `problem` ("has no
// usable …").
std::shared_ptr<const TableEncoding> table_of_json(const nlohmann::json& json,
                                                   const std::vector<std::string>& names,
                                                   double inputs, std::string& problem);

}  // namespace tanren
