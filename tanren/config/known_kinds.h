// Names of the kinds in a program: the values that model.kind may have, those that data.*.kind may
// have besides the ones that the checks know, and the accelerator that run.device may name. Used
// by validate and by code that reads a config.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct KnownKinds {
  KnownKinds() = default;
  // Model kinds only. Implicit, like the next constructor: most callers register no dataset kinds.
  KnownKinds(std::initializer_list<std::string> model_kinds) : models(model_kinds) {}
  KnownKinds(std::vector<std::string> model_kinds,  // NOLINT(google-explicit-constructor)
             std::vector<std::string> data_kinds = {})
      : models(std::move(model_kinds)), datasets(std::move(data_kinds)) {}

  std::vector<std::string> models;    // all of them
  std::vector<std::string> datasets;  // only those that the program registered
  std::string accelerator = "cuda";
};

}  // namespace tanren
