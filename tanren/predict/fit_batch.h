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

// The batch size for cutting windows: evaluate.batch; if that is not set, 256 rows of a csv, else
// training's microbatch on one rank, at most 256. It depends neither on ranks nor on memory, so
// windows do not, either.
int64_t asked_batch(const RunConfig& config, const Plan& plan);

// The number of samples of a forward: `wanted`, halved until the predicted peak fits into memory
// beside what is allocated. Logs a line if it halves. ConfigError with both numbers if one sample
// does not fit. prepared.fit has the probe as its dataset.
int64_t fitted_batch(const Prepared& prepared, int64_t wanted);

}  // namespace tanren
