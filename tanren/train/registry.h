// Registry: everything that a config may name and a program may add to: kinds of model and of data.
// Made before a run and handed down by const reference; a plain value.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/data/registry.h"
#include "tanren/model/registry.h"

#include <utility>

namespace tanren {

struct Registry {
  // Implicit, so that a program that adds only models can pass its ModelRegistry.
  Registry(ModelRegistry with_models = {},  // NOLINT(google-explicit-constructor)
           DatasetRegistry with_datasets = {})
      : models(std::move(with_models)), datasets(std::move(with_datasets)) {}

  KnownKinds known() const { return {models.kinds(), datasets.kinds()}; }

  ModelRegistry models;
  DatasetRegistry datasets;
};

}  // namespace tanren
