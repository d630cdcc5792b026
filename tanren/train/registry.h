// Registry: everything that a config may name and a program may add to: kinds of model and of data,
// and the kind of accelerator.
// Made before a run and handed down by const reference; a plain value.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/data/registry.h"
#include "tanren/model/registry.h"
#include "tanren/train/device.h"

#include <utility>

namespace tanren {

struct Registry {
  // Implicit, so that a program that adds only models can pass its ModelRegistry.
  Registry(ModelRegistry with_models = {},  // NOLINT(google-explicit-constructor)
           DatasetRegistry with_datasets = {}, AcceleratorKind with_accelerators = {})
      : models(std::move(with_models)),
        datasets(std::move(with_datasets)),
        accelerators(std::move(with_accelerators)) {}

  KnownKinds known() const {
    KnownKinds kinds(models.kinds(), datasets.kinds());
    kinds.accelerator = accelerators.name;
    return kinds;
  }

  ModelRegistry models;
  DatasetRegistry datasets;
  AcceleratorKind accelerators;
};

}  // namespace tanren
