// What makes a search space wrong by itself, without a config: used by the checks of [sweep] and by
// Space, so that a program's own space is held to the same rules. Pure functions.
#pragma once

#include "tanren/config/sections/sweep.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct Field;

// Whether the key takes whole numbers. True also for batch.global_batch, which takes a word, too.
bool takes_whole_numbers(const Field& field);

// The key and the value of "KEY=VALUE", trimmed. Empty if `when` has another form.
std::optional<std::pair<std::string, std::string>> condition_of(const std::string& when);

struct SpaceProblem {
  std::string key;   // of the dimension; may be empty
  std::string what;  // "low 0.1 is not below high 0.01; swap them"
};

// All problems of `space`, in its order: a dimension without a key, the same key twice, ends that
// are missing or in the wrong order, a log scale that reaches 0, values beside a range, and a
// condition that names no dimension or none of its values, or that is part of a circle.
std::vector<SpaceProblem> space_problems(const std::vector<DimensionOptions>& space);

}  // namespace tanren
