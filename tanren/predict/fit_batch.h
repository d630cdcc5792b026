// How many samples a batch of tanren predict has, and how many of them a forward takes at once:
// fewer if a dry run says that they do not fit into memory. Called by predict_file, before it reads
// a row.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/data_info.h"
#include "tanren/data/dataset.h"
#include "tanren/run/prepare.h"

#include <cstdint>
#include <memory>

namespace tanren {

// A dataset whose every sample is `one` ([1, …] fields): for dry runs, which read no values.
std::unique_ptr<Dataset> probe_dataset(Batch one, DataInfo info);

// Samples of a batch that windows are cut into: evaluate.batch; if it is not asked for, 256 rows of
// a csv, else training's microbatch on one rank, at most 256. Depends on neither ranks nor memory,
// so that no window does.
int64_t asked_batch(const RunConfig& config, const Plan& plan);

// The samples of a forward: `wanted`, halved until its predicted peak fits beside what stands; with
// a line in the log if it was halved. ConfigError with both numbers if one sample does not fit.
// prepared.fit has the probe as its dataset.
int64_t fitted_batch(const Prepared& prepared, int64_t wanted);

}  // namespace tanren
