// How many samples a forward of tanren predict has: as evaluations, or fewer if a dry run says that
// they do not fit into memory. Called by predict_file, before it reads a row.
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

// plan.evaluate.batch, halved until its predicted peak fits beside what stands; with a line in the
// log if it was halved. ConfigError with both numbers if one sample does not fit. prepared.fit has
// the probe as its dataset.
int64_t fitted_batch(const Prepared& prepared);

}  // namespace tanren
