// Checks a whole config: every range, and every pair of values that do not go together.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// All problems, one line each (the key first: "key is …; what to do"); empty: the config is valid.
// Facts that need the data or the machine are checked by the plan.
std::vector<std::string> validate(const RunConfig& config, const KnownKinds& known);

// Keys that are set but have no meaning, each with the key whose value makes it meaningless.
// validate() reports each as a problem, too.
std::vector<std::pair<std::string, std::string>> meaningless_keys(const RunConfig& config,
                                                                  const KnownKinds& known);

// The keys that take one of a fixed set of words, with the words; true and false for switches.
// Collected by running the checks, so that the words are listed in one place.
std::map<std::string, std::vector<std::string>> closed_sets(const KnownKinds& known);

}  // namespace tanren
