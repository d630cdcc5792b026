// The kinds that a program brings or has, by name: what model.kind and data.*.kind may say beside
// the words that the checks know. Called by validate and by what reads a config.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct KnownKinds {
  KnownKinds() = default;
  // Models alone. Implicit, like the next: most callers have no data kinds of their own.
  KnownKinds(std::initializer_list<std::string> model_kinds) : models(model_kinds) {}
  KnownKinds(std::vector<std::string> model_kinds,  // NOLINT(google-explicit-constructor)
             std::vector<std::string> data_kinds = {})
      : models(std::move(model_kinds)), datasets(std::move(data_kinds)) {}

  std::vector<std::string> models;    // all
  std::vector<std::string> datasets;  // registered ones
};

}  // namespace tanren
