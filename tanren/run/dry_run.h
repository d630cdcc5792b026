// What a config's model would compute, found without weights and without a step.
// Called by `tanren summary`.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/model/layer_table.h"
#include "tanren/run/registry.h"

#include <filesystem>

namespace tanren {

// The model's table for batches of batch.microbatch samples (1 where the config leaves it open)
// with the shapes of the training data, in fp32. Errors as plan_only.
// `folder`: the run's, if it has begun.
LayerTable dry_run(const RunConfig& asked, const Registry& registry,
                   const std::filesystem::path& folder = {});

}  // namespace tanren
