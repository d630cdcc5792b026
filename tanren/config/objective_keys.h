// The keys of [objectives.NAME]. A config has those of the objectives that it names. A key that
// neither the file nor --set gave has the run's value. Called by all code that reads, writes or
// compares configs; later code reads whole sections.
#pragma once

#include "tanren/config/run_config.h"

#include <set>
#include <string>
#include <string_view>

namespace tanren {

// "objectives.generator." of "objectives.generator.every". Empty for another key, and for a name
// with other characters than letters, digits, _ and -, because a key cannot hold it.
std::string objective_prefix(std::string_view key);

// Makes the entry of the objective that `key` belongs to, if it belongs to one.
void add_objective(RunConfig& config, std::string_view key);

// Gives each key of an objective that is not in config.asked the value of the run's key. If the
// objective's optimizer or schedule is of another kind than the run's, this applies to the keys
// that its kind reads, and the other keys get their defaults.
void inherit(RunConfig& config);

// Call this before the run's `key` is dropped because the run's kind does not read it. Each
// objective with its own kind that reads the key keeps the run's current value as its own.
void keep_in_objectives(RunConfig& config, const std::string& key);

// The keys of objectives that are not in config.asked and have the value that inherit() gives them.
// They are neither written nor compared.
std::set<std::string> inherited_keys(const RunConfig& config);

}  // namespace tanren
