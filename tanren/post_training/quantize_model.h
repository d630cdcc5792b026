// quantize: post-training quantisation of a whole model in a program of one's own. Not thread-safe.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/interop/whole_model.h"

namespace tanren {

// Gives the model 8-bit weights by options.scheme: weights, dynamic or static. Batch norms are
// folded into convolutions. options.samples of `samples` calibrate: labelled, and as far apart as
// they can be, as `tanren quantize` takes those of a run. Layers are put back to fp32, worst first,
// until the accuracy of these samples, or the loss of a task without classes, is within
// options.tolerance. Afterwards model.task uses the 8-bit weights, model.quantized describes them,
// and write_whole_model(file, model) writes them. ConfigError for other options and for a pattern
// of options.keep that matches nothing. InputError for fewer than 8 samples, for a model that has
// 8-bit weights already or is not fp32, if no layer can be 8-bit, and for inputs or weights that
// are not finite, with the layer's name.
void quantize(WholeModel& model, const Dataset& samples, const QuantizeOptions& options);

}  // namespace tanren
