// The layer table of a config's model, computed without weights and without a step. Called by
// `tanren summary`.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/model/layer_table.h"
#include "tanren/train/registry.h"

namespace tanren {

// The table for batches of batch.microbatch samples (1 if the config leaves it open) with the
// shapes of the training data, in fp32. config.model has its kind and sizes. Errors as plan_only;
// ConfigError for a model that needs values.
LayerTable model_table(const RunConfig& config, const Registry& registry);

}  // namespace tanren
