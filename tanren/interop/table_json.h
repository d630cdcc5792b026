// A table's encoding as JSON, as a whole model keeps it. Called by whole_model.
#pragma once

#include "tanren/base/table_encoding.h"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tanren {

nlohmann::json table_json(const TableEncoding& table);

// Reads it back, for columns of these names that give as many `inputs` together. The JSON is
// untrusted: null, and `problem` set ("has no usable …"), if it is not what table_json writes.
std::shared_ptr<const TableEncoding> table_of_json(const nlohmann::json& json,
                                                   const std::vector<std::string>& names,
                                                   double inputs, std::string& problem);

}  // namespace tanren
