// Checks a whole config: every range and every pair that does not go together.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// All problems, one line each (the key first: "key is …; what to do"); empty: fine. Facts that need the data or
// the machine are the plan's to check.
std::vector<std::string> validate(const RunConfig& config, const KnownKinds& known);

// Keys that have a value and no meaning, each with the key whose value makes it so; each is a problem, too.
std::vector<std::pair<std::string, std::string>> meaningless_keys(const RunConfig& config,
                                                                  const KnownKinds& known);

// The keys that take one of a few words, with the words; true and false for switches. The checks
// themselves tell, so that the words stand in one place.
std::map<std::string, std::vector<std::string>> closed_sets(const KnownKinds& known);

}  // namespace tanren
