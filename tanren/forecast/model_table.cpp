#include "tanren/forecast/model_table.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/train/build.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {

namespace {

// A batch of `size` samples with the fields of `sample`, without memory.
Batch batch_like(const Batch& sample, int64_t size) {
  Batch batch;
  for (const auto& [name, field] : sample.fields) {
    std::vector<int64_t> sizes = field.sizes().vec();
    sizes.at(0) = size;
    batch.fields.set(name, at::empty(sizes, field.options().device(at::kMeta)));
  }
  batch.ids = at::arange(size, at::kLong);
  return batch;
}

}  // namespace

LayerTable model_table(const RunConfig& config, const Registry& registry) {
  const Datasets datasets = open_datasets(config.data, registry.datasets);
  const Batch sample = collated(*datasets.train, {0}).batch;
  try {
    return layer_table([&] { return build_task(config, registry.models, *datasets.train); },
                       batch_like(sample, std::max<int64_t>(config.batch.microbatch, 1)));
  } catch (const NeedsValues& error) {
    throw ConfigError(
        fmt::format("{}; a table of layers is made without values, so read its sizes and memory in "
                    "tanren plan",
                    error.what()));
  }
}

}  // namespace tanren
