// Opens one source as two datasets, for data.split. All kinds go through here, including those that
// a program registers. Invariant: no sample is in both datasets, and no window of tokens overlaps
// one of the other dataset. Called when a run opens its data.
#pragma once

#include "tanren/data/registry.h"

#include <memory>
#include <string>

namespace tanren {

struct SplitSource {
  std::unique_ptr<Dataset> train, eval;
  // For the plan: "evaluation gets 180 of 1797 rows (10.0 %, by hash, stratified over 10 classes)".
  std::string how;
};

// Opens `source`, whose split is above 0. Streams are opened once for each part. Any other source
// is opened once, with the same keys for training and evaluation. Evaluation calls collate, so it
// sees no augmentation. Both datasets have the classes and names of the whole source. DataError if
// no sample is left for evaluation.
SplitSource open_split(const DatasetRegistry& registry, SourceOptions source,
                       const std::string& what);

}  // namespace tanren
